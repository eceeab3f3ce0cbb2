//! Tests of the files under `.slabfs`.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::stage::{BOTH, Stage};
use super::xattr::errno;

#[test]
fn hidden_files_are_readable_and_cannot_be_changed() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        fs::create_dir(stage.path("run")).unwrap();
        fs::write(stage.path("run/data"), vec![1; 100_000]).unwrap();
        fs::set_permissions(stage.path("run/data"), fs::Permissions::from_mode(0o640)).unwrap();
        let json = |path: &str| -> serde_json::Value {
            serde_json::from_slice(&fs::read(stage.path(path)).unwrap()).unwrap()
        };
        assert!(json(".slabfs/stats")["counters"].is_object());
        let status = json(".slabfs/status");
        assert_eq!(
            status["servers"].as_array().map(Vec::len),
            Some(1),
            "{status}"
        );
        assert_eq!(
            json(".slabfs/layout/run/data")["dims"],
            serde_json::json!([100_000])
        );
        let data = fs::metadata(stage.path(".slabfs/layout/run/data")).unwrap();
        assert_eq!((data.mode() & 0o777, data.len()), (0o440, 0));
        assert_eq!(
            fs::read_dir(stage.path("")).unwrap().count(),
            1,
            "{services:?}"
        );
        let names = |path: &str| -> Vec<String> {
            let mut names: Vec<String> = fs::read_dir(stage.path(path))
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        assert_eq!(
            names(".slabfs"),
            [
                "call",
                "find",
                "h5",
                "layout",
                "npy",
                "root.h5",
                "root.zarr",
                "stats",
                "status",
                "zarr"
            ]
        );
        let all = std::process::Command::new("ls")
            .args(["-f"])
            .arg(stage.path(".slabfs"))
            .output()
            .unwrap();
        assert_eq!(
            all.stdout,
            b".\n..\ncall\nfind\nstats\nstatus\nlayout\nh5\nnpy\nzarr\nroot.zarr\nroot.h5\n"
        );
        assert_eq!(names(".slabfs/layout"), ["run"]);
        assert_eq!(names(".slabfs/layout/run"), ["data"]);
        assert_eq!(errno(fs::read(stage.path(".slabfs/none"))), libc::ENOENT);
        assert_eq!(
            errno(fs::read(stage.path(".slabfs/layout/none"))),
            libc::ENOENT
        );
        assert_eq!(
            errno(fs::write(stage.path(".slabfs/stats"), "x")),
            libc::EACCES
        );
        assert_eq!(
            errno(fs::write(stage.path(".slabfs/new"), "x")),
            libc::EPERM
        );
        assert_eq!(
            errno(fs::remove_file(stage.path(".slabfs/stats"))),
            libc::EPERM
        );
        assert_eq!(errno(fs::remove_dir(stage.path(".slabfs"))), libc::EPERM);
        assert_eq!(
            errno(fs::rename(stage.path("run"), stage.path(".slabfs/run"))),
            libc::EPERM
        );
        assert!(errno(fs::create_dir(stage.path("run/.slabfs/x"))) == libc::ENOENT);
    }
}

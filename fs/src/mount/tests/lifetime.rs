//! Tests of mounting, unmounting, and unusable mount points.

use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;

use super::stage::{BOTH, Services, Stage};
use crate::mount::{Mount, MountError, MountOptions};

#[test]
fn a_second_mount_at_the_same_point_is_refused() {
    let Some(stage) = Stage::set(Services::Here) else {
        return;
    };
    let options = MountOptions::default();
    let second = Mount::start(stage.clients.clone(), stage.running.point(), &options);
    assert!(matches!(second, Err(MountError::Busy { .. })), "{second:?}");
    fs::write(stage.path("still"), "there").unwrap();
}

#[test]
fn an_unmount_detaches_a_mount_that_is_in_use() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        fs::write(stage.path("file"), "text").unwrap();
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(stage.path("file"))
            .unwrap();
        file.write_all_at(b"T", 0).unwrap();
        stage.running.unmount().unwrap();
        assert!(stage.running.has_ended());
        assert!((&file).read(&mut [0; 4]).is_err());
        assert_eq!(
            fs::read_dir(stage.path("")).unwrap().count(),
            0,
            "nothing is mounted there"
        );
        drop(file);
        // The written bytes are there when it is mounted again.
        let again = Mount::start(
            stage.clients.clone(),
            stage.running.point(),
            &MountOptions::default(),
        )
        .unwrap();
        assert_eq!(
            fs::read(stage.path("file")).unwrap(),
            b"Text",
            "{services:?}"
        );
        again.unmount().unwrap();
    }
}

#[test]
fn an_unmount_by_another_process_ends_the_session() {
    let Some(stage) = Stage::set(Services::Here) else {
        return;
    };
    nix::mount::umount(stage.running.point()).unwrap();
    stage.running.wait().unwrap();
    stage.running.unmount().unwrap();
}

#[test]
fn concurrent_threads_write_and_remove_files() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        std::thread::scope(|scope| {
            for worker in 0..8 {
                let stage = &stage;
                scope.spawn(move || {
                    for i in 0..40 {
                        let path = stage.path(&format!("{worker}-{i}"));
                        let bytes = vec![worker as u8; 1000 * i];
                        fs::write(&path, &bytes).unwrap();
                        assert_eq!(fs::read(&path).unwrap(), bytes);
                        if i % 2 == 0 {
                            fs::remove_file(&path).unwrap();
                        }
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(stage.path("")).unwrap().count(), 8 * 20);
    }
}

#[test]
fn a_mount_detached_while_in_use_does_not_block_the_daemon() {
    let Some(stage) = Stage::set(Services::Here) else {
        return;
    };
    let file = fs::File::create(stage.path("file")).unwrap();
    nix::mount::umount2(stage.running.point(), nix::mount::MntFlags::MNT_DETACH).unwrap();
    file.write_all_at(b"still works", 0).unwrap();
    let unmounted = stage.running.unmount();
    // Where the system permits aborting the connection, the mount ends; otherwise the error says why it does not.
    if let Err(error) = unmounted {
        assert!(error.to_string().contains("still use it"), "{error}");
    }
    drop(file);
    stage.running.wait().unwrap();
}

//! Mounting, unmounting, and mount points that will not do.

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
    let second = Mount::start(stage.client.clone(), stage.running.point(), &options);
    assert!(matches!(second, Err(MountError::Busy { .. })), "{second:?}");
    fs::write(stage.path("still"), "there").unwrap();
}

#[test]
fn an_unmount_takes_the_mount_from_those_who_use_it() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        fs::write(stage.path("file"), "kept").unwrap();
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(stage.path("file"))
            .unwrap();
        file.write_all_at(b"K", 0).unwrap();
        stage.running.unmount().unwrap();
        assert!(stage.running.has_ended());
        assert!((&file).read(&mut [0; 4]).is_err());
        assert_eq!(
            fs::read_dir(stage.path("")).unwrap().count(),
            0,
            "nothing is mounted there"
        );
        drop(file);
        // What was written is there when it is mounted again.
        let again = Mount::start(
            stage.client.clone(),
            stage.running.point(),
            &MountOptions::default(),
        )
        .unwrap();
        assert_eq!(
            fs::read(stage.path("file")).unwrap(),
            b"Kept",
            "{services:?}"
        );
        again.unmount().unwrap();
    }
}

#[test]
fn an_unmount_by_others_ends_the_session() {
    let Some(stage) = Stage::set(Services::Here) else {
        return;
    };
    nix::mount::umount(stage.running.point()).unwrap();
    stage.running.wait().unwrap();
    stage.running.unmount().unwrap();
}

#[test]
fn many_at_once() {
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
fn a_mount_that_was_detached_under_a_program_does_not_hold_the_daemon() {
    let Some(stage) = Stage::set(Services::Here) else {
        return;
    };
    let file = fs::File::create(stage.path("file")).unwrap();
    nix::mount::umount2(stage.running.point(), nix::mount::MntFlags::MNT_DETACH).unwrap();
    file.write_all_at(b"still works", 0).unwrap();
    let unmounted = stage.running.unmount();
    // Where the system lets us end the connection it is over, elsewhere it is said why not.
    if let Err(error) = unmounted {
        assert!(error.to_string().contains("still use it"), "{error}");
    }
    drop(file);
    stage.running.wait().unwrap();
}

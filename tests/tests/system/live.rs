//! Views of arrays in other formats: `.slabfs/npy`, `.slabfs/h5` and `.slabfs/zarr`.

use std::path::Path;
use std::process::Command;

use slabfs_tests::tool::{create, run, shell, slabfs};
use slabfs_tests::{Cluster, Up, binary, inputs, needs_mount, needs_root};

#[track_caller]
fn script(args: &[&Path], what: &str) {
    let mut command = Command::new(inputs::python());
    command
        .args(["-W", "ignore"])
        .arg(inputs::script("live.py"))
        .arg(what)
        .args(args)
        .env("SLABFS", binary::path());
    run(&mut command).ok();
}

#[test]
fn numpy_opens_arrays() {
    needs_mount!();
    let up = Up::start();
    script(&[up.mnt()], "numpy");
}

#[test]
fn zarr_opens_containers() {
    needs_mount!();
    let up = Up::start();
    script(&[up.mnt()], "zarr");
}

#[test]
fn h5py_opens_containers() {
    needs_mount!();
    let up = Up::start();
    script(&[up.mnt()], "hdf5");
}

#[test]
fn xarray_opens_datasets() {
    needs_mount!();
    let up = Up::start();
    for name in [
        "coads_climatology.cdf",
        "levitus_climatology.cdf",
        "ocean_atlas_subset.nc",
    ] {
        let file = Path::new(inputs::FERRET).join(name);
        let there = up.at("it");
        slabfs([
            "import",
            file.to_str().expect("text"),
            there.to_str().expect("text"),
        ])
        .ok();
        script(&[up.mnt(), &file], "datasets");
        std::fs::remove_dir_all(there).expect("removed");
    }
}

#[test]
fn random_containers() {
    needs_mount!();
    let up = Up::start();
    for seed in ["1", "2", "3", "4", "5", "6"] {
        script(&[up.mnt(), Path::new(seed)], "random");
    }
}

/// Steps that are appended on one mount are there completely, or not at all, in the views of another one.
#[test]
fn steps_of_another_mount() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    let [one, two] = [0, 1].map(|i| cluster.mnt(i));
    script(&[&one, &two, Path::new("8")], "steps");
}

/// What one mount writes, the view of another one shows.
#[test]
fn views_of_another_mount() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    let [one, two] = [0, 1].map(|i| cluster.mnt(i));
    let array = one.join("a");
    slabfs([
        "create",
        array.to_str().expect("text"),
        "--dims",
        "1000",
        "--dtype",
        "u1",
    ])
    .ok();
    for value in 0..5_u8 {
        std::fs::write(&array, vec![value; 1000]).expect("written");
        let bytes = std::fs::read(two.join(".slabfs/npy/a.npy")).expect("read");
        assert_eq!(&bytes[128..], vec![value; 1000]);
        let chunk = std::fs::read(two.join(".slabfs/zarr/a.zarr/c/0")).expect("read");
        assert_eq!(chunk, vec![value; 1000]);
    }
    shell(&two, "grep -q '\"shape\"' .slabfs/zarr/a.zarr/zarr.json").ok();
}

/// A directory that may be listed and not entered, and arrays of others.
#[test]
fn views_have_what_the_caller_may_read() {
    needs_mount!();
    needs_root!();
    let up = Up::with(&["--allow-other"]);
    for name in ["open", "nox"] {
        std::fs::create_dir(up.at(name)).expect("made");
    }
    for name in ["open/mine", "open/secret", "nox/x"] {
        create(&up.at(name), "4", "u1", &["--tag", "password=hunter"]);
    }
    let line = "chmod 755 m m/open . && chmod 600 m/open/secret && chmod 744 m/nox";
    shell(up.area().path(), line).ok();
    let other_user = |line: &str| {
        shell(
            up.area().path(),
            &format!("setpriv --reuid 65534 --clear-groups --regid 65534 {line}"),
        )
    };
    shell(
        up.area().path(),
        "h5ls m/.slabfs/h5/open.h5 | grep -q secret",
    )
    .ok();
    let listed = other_user("h5ls m/.slabfs/h5/open.h5").ok();
    assert!(listed.text().contains("mine") && !listed.text().contains("secret"));
    assert_ne!(other_user("cat m/.slabfs/h5/nox.h5").status, 0);
    assert_ne!(other_user("cat m/.slabfs/npy/open/secret.npy").status, 0);
    assert_ne!(
        other_user("cat m/.slabfs/zarr/open.zarr/secret/zarr.json").status,
        0
    );
    other_user("cat m/.slabfs/npy/open/mine.npy").ok();
}

/// Also those that need several replies, and those of arrays that shrink.
#[test]
fn listings_end() {
    needs_mount!();
    let up = Up::start();
    create(&up.at("a"), "5000", "f8", &["--max-dims", "unlimited"]);
    let count = |dir: &str| {
        let line = format!("timeout 20 ls -fl {dir} | wc -l");
        shell(up.area().path(), &line).ok().text().trim().to_owned()
    };
    // With the line of the total, `.` and `..`.
    assert_eq!(count("m/.slabfs"), "13");
    assert_eq!(count("m/.slabfs/zarr/a.zarr/c"), "4");
    shell(
        up.area().path(),
        "truncate -s 800000000 m/a && timeout 60 ls -fl m/.slabfs/zarr/a.zarr/c | tail -1",
    )
    .ok();
}

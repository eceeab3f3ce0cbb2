//! Invalid command lines, configs and array descriptions: exit status 2, and a message with advice.

use slabfs_tests::cluster::write_key;
use slabfs_tests::tool::create;
use slabfs_tests::{Area, Up, file, needs_mount, slabfs};

#[test]
fn flags() {
    for (args, words) in [
        (&["nonsense"][..], &["nonsense"][..]),
        (&["up", "--nonsense", "mnt"], &["--nonsense"]),
        (&["up"], &["MOUNTPOINT"]),
        (&["up", "--servers", "0", "mnt"], &["--servers"]),
        (&["up", "--servers", "many", "mnt"], &["--servers"]),
        (&["up", "--cache", "lots", "mnt"], &["--cache", "64K"]),
        (&["up", "--threads", "0", "mnt"], &["--threads"]),
        (&["mdserver", "--data", "d"], &["--listen"]),
        (&["mdserver", "--listen", "unix:x.s"], &["--data"]),
        (
            &["mdserver", "--listen", "nowhere", "--data", "d"],
            &["unix:", "tcp:"],
        ),
        (
            &["mdserver", "--listen", "tcp:host", "--data", "d"],
            &["tcp:"],
        ),
        (
            &["mdserver", "--listen", "tcp:host:99999", "--data", "d"],
            &["99999"],
        ),
        (
            &["mdserver", "--listen", "unix:", "--data", "d"],
            &["unix:"],
        ),
        (
            &["objserver", "--listen", "unix:x.s", "--data", "d"],
            &["--md"],
        ),
        (&["mount", "mnt"], &["--md"]),
        (
            &["mount", "--md", "unix:x.s", "--io-timeout", "soon", "mnt"],
            &["--io-timeout", "30s"],
        ),
        (
            &["mount", "--md", "unix:x.s", "--io-timeout", "5ms", "mnt"],
            &["--io-timeout", "100ms"],
        ),
        (
            &["mount", "--md", "unix:x.s", "--dirty-limit", "5", "mnt"],
            &["--dirty-limit", "5 bytes", "1M"],
        ),
        (&["layout", "x", "--axes", "1"], &["0,1"]),
        (&["create", "x", "--dims", "4"], &["--dtype"]),
    ] {
        slabfs(args).fails(2, words);
    }
}

#[test]
fn configs() {
    let area = Area::new();
    let up = |text: &str| {
        let config = area.write("c.toml", text).display().to_string();
        slabfs([
            "up",
            "--config",
            &config,
            &area.at("m").display().to_string(),
        ])
    };
    up("data = ").fails(2, &["c.toml", "TOML"]);
    up("dta = 'x'").fails(2, &["c.toml", "dta", "data"]);
    up("servers = 'many'").fails(2, &["servers", "many"]);
    up("servers = [1]").fails(2, &["servers"]);
    up("read-only = 'yes'").fails(2, &["read-only"]);
    let gone = area.at("gone.toml").display().to_string();
    slabfs(["up", "--config", &gone, "m"]).fails(2, &["gone.toml"]);
    slabfs(["mdserver", "--config"]).fails(2, &["--config"]);
    assert!(!area.at("m").exists());
}

#[test]
fn descriptions_of_arrays() {
    needs_mount!();
    let up = Up::start();
    let path = up.at("a").display().to_string();
    let make = |more: &[&str]| slabfs([&["create", &path][..], more].concat());
    make(&["--dims", "16,x", "--dtype", "f4"]).fails(2, &["--dims", "x", "16,16"]);
    make(&["--dims", "-4", "--dtype", "f4"]).fails(2, &[]);
    make(&["--dims=-4", "--dtype", "f4"]).fails(2, &["--dims"]);
    make(&["--dims", "4,,4", "--dtype", "f4"]).fails(2, &["--dims"]);
    make(&["--dims", "9999999999999,9999999999999", "--dtype", "f4"]).fails(2, &["--dims"]);
    make(&["--dims", "4,4", "--dtype", "f32"]).fails(2, &["--dtype", "f4"]);
    make(&["--dims", "4,4", "--dtype", "f4", "--max-dims", "3,4"])
        .fails(2, &["--max-dims", "axis 0"]);
    make(&["--dims", "4,4", "--dtype", "f4", "--max-dims", "unlimited"]).fails(2, &["--max-dims"]);
    make(&["--dims", "4,4", "--dtype", "f4", "--fill", "red"]).fails(2, &["--fill"]);
    make(&["--dims", "4,4", "--dtype", "u1", "--fill", "300"]).fails(2, &["--fill"]);
    make(&["--dims", "4,4", "--dtype", "f4", "--layout", "tiles"])
        .fails(2, &["--layout", "aligned"]);
    make(&["--dims", "4,4", "--dtype", "f4", "--codec", "zstd:99"]).fails(2, &["--codec"]);
    make(&["--dims", "4,4", "--dtype", "f4", "--layout", "grid:2,2,2"]).fails(2, &["3 axes"]);
    assert!(!up.at("a").exists(), "no half-made array stays");
    create(&up.at("a"), "4,4", "f4", &[]);
    make(&["--dims", "5,5", "--dtype", "f4"]).fails(1, &["exists already"]);
    assert_eq!(file::xattr(&up.at("a"), "user.slabfs.dims"), "4,4");
    slabfs(["set", &path]).fails(2, &["--dims"]);
    slabfs(["set", &path, "--dims", "4,x"]).fails(2, &["--dims"]);
    slabfs(["layout", &path, "--axes", "0,7"]).fails(1, &["--axes"]);
    slabfs(["layout", &path, "--at", "3"]).fails(1, &[]);
    for command in ["info", "layout"] {
        slabfs([command, &up.at("none").display().to_string()]).fails(1, &["does not exist"]);
        slabfs([command, "/etc/passwd"]).fails(1, &["not on a slabfs mount"]);
    }
    slabfs([
        "create",
        &up.area().at("outside").display().to_string(),
        "--dims",
        "4",
        "--dtype",
        "u1",
    ])
    .fails(1, &["not on a slabfs mount"]);
    assert!(!up.area().at("outside").exists());
    slabfs(["stats", "/etc"]).fails(1, &["not on a slabfs mount"]);
    slabfs(["umount", &up.area().path().display().to_string()]).fails(1, &["nothing is mounted"]);
    slabfs(["umount", "/proc"]).fails(1, &["proc"]);
}

#[test]
fn tcp_needs_a_key() {
    let area = Area::new();
    let data = area.at("d").display().to_string();
    let serve = |key: Option<&str>| {
        let mut args = vec!["mdserver", "--listen", "tcp:127.0.0.1:0", "--data", &data];
        args.extend(key.iter().flat_map(|key| ["--key-file", key]));
        slabfs(args)
    };
    serve(None).fails(2, &["--key-file"]);
    serve(Some("/nonexistent/key")).fails(2, &["/nonexistent/key", "head -c 32 /dev/urandom"]);
    let short = write_key(&area, "short", b"0123").display().to_string();
    serve(Some(&short)).fails(2, &["16"]);
    let shown = write_key(&area, "shown", b"0123456789abcdef0123")
        .display()
        .to_string();
    std::fs::set_permissions(&shown, std::os::unix::fs::PermissionsExt::from_mode(0o644))
        .expect("chmod");
    serve(Some(&shown)).fails(2, &["chmod 600"]);
    let mount = [
        "mount",
        "--md",
        "tcp:127.0.0.1:1",
        &area.mkdir("m").display().to_string(),
    ]
    .map(str::to_owned);
    slabfs(mount).fails(2, &["--key-file"]);
    slabfs([
        "objserver",
        "--listen",
        "unix:o.s",
        "--md",
        "tcp:127.0.0.1:1",
        "--data",
        &data,
    ])
    .fails(2, &["--key-file"]);
    assert!(!area.at("d").exists(), "nothing was made");
}

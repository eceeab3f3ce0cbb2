//! The command as a new user meets it: help, config files, background, output for people and programs.

use slabfs_tests::tool::{create, info, layout, servers, shell, stats};
use slabfs_tests::{
    Area, Cluster, Random, Service, Up, binary, file, mounts, needs_mount, poll, slabfs,
};

const COMMANDS: [&str; 24] = [
    "up",
    "mdserver",
    "objserver",
    "mount",
    "umount",
    "create",
    "info",
    "set",
    "layout",
    "status",
    "stats",
    "servers",
    "locks",
    "import",
    "export",
    "collate",
    "couple",
    "completions",
    "man",
    "call",
    "find",
    "tag",
    "untag",
    "tags",
];

#[test]
fn help_names_every_flag() {
    let general = slabfs(["--help"]).ok();
    for command in COMMANDS.iter().chain(&["demo"]) {
        assert!(
            general.text().contains(&format!("  {command}")),
            "{command}:\n{}",
            general.text()
        );
    }
    let running = [
        "--config",
        "--daemon",
        "--foreground",
        "--log-file",
        "--log-size",
        "--verbose",
    ];
    let mount = ["--read-only", "--allow-other", "--io-timeout", "--key-file"];
    let array = [
        "--dims",
        "--dtype",
        "--max-dims",
        "--fill",
        "--layout",
        "--codec",
    ];
    for (command, flags) in [
        (
            "up",
            [
                &[
                    "--data",
                    "--servers",
                    "--listen",
                    "--accept-loss",
                    "--meta-cache",
                    "--on-journal-error",
                    "MOUNTPOINT",
                ][..],
                &running,
                &mount,
            ]
            .concat(),
        ),
        (
            "mdserver",
            [
                &[
                    "--data",
                    "--listen",
                    "--key-file",
                    "--accept-loss",
                    "--meta-cache",
                    "--on-journal-error",
                ][..],
                &running,
            ]
            .concat(),
        ),
        (
            "objserver",
            [&["--data", "--listen", "--md", "--key-file"][..], &running].concat(),
        ),
        (
            "mount",
            [&["--md", "MOUNTPOINT"][..], &running, &mount].concat(),
        ),
        ("umount", vec!["MOUNTPOINT"]),
        (
            "create",
            [
                &["PATH", "--like", "--tag", "--from-json", "--parents"][..],
                &array,
            ]
            .concat(),
        ),
        (
            "set",
            [
                &[
                    "PATH",
                    "--default-dtype",
                    "--default-tag",
                    "--clear-default",
                ][..],
                &array,
            ]
            .concat(),
        ),
        (
            "find",
            vec![
                "QUERY", "--in", "--json", "--count", "--paths0", "--limit", "--sort", "--part",
            ],
        ),
        ("tag", vec!["KEY=VALUE", "--to"]),
        ("untag", vec!["KEY", "--from"]),
        ("tags", vec!["PATH", "--json"]),
        ("info", vec!["PATH", "--json", "--cdl"]),
        (
            "import",
            vec![
                "FILE",
                "DEST",
                "--append",
                "--dry-run",
                "--verify",
                "--jobs",
                "--json",
            ],
        ),
        ("export", vec!["SOURCE", "FILE", ".zarr"]),
        ("layout", vec!["PATH", "--svg", "--axes"]),
        ("status", vec!["MOUNTPOINT", "--json"]),
        ("stats", vec!["MOUNTPOINT", "--json", "--watch"]),
        ("completions", vec!["SHELL"]),
        ("man", vec!["DIRECTORY"]),
        ("servers", vec!["MOUNTPOINT", "--json"]),
        ("locks", vec!["PATH", "--json"]),
        (
            "couple",
            vec![
                "PATH",
                "--keep",
                "--timeout",
                "--match",
                "--off",
                "status",
                "end",
            ],
        ),
    ] {
        let help = slabfs([command, "--help"]).ok();
        assert!(
            help.text().contains("slabfs "),
            "an example or usage:\n{}",
            help.text()
        );
        for flag in flags {
            assert!(
                help.text().contains(flag),
                "{command} {flag}:\n{}",
                help.text()
            );
        }
    }
    let table = slabfs(["demo", "table", "--help"]).ok();
    assert!(table.text().contains("--mount"));
    let version = slabfs(["--version"]).ok();
    assert!(version.text().starts_with("slabfs "));
    assert!(
        slabfs([] as [&str; 0]).status == 2,
        "without a command: the help, and status 2"
    );
}

#[test]
fn a_config_file_instead_of_flags() {
    needs_mount!();
    let area = Area::new();
    let config = area.at("c.toml");
    let data = area.at("elsewhere");
    let text = format!(
        "data = \"{}\"\nservers = 3\nallow-other = false\ncache = \"8M\"\nverbose = 0\n",
        data.display()
    );
    std::fs::write(&config, text).expect("the config");
    let mut args = vec![
        "up".to_owned(),
        "--config".to_owned(),
        config.display().to_string(),
    ];
    let mnt = area.mkdir("m");
    args.push(mnt.display().to_string());
    {
        let mut service = slabfs_tests::Service::start(area.path(), "up", &args);
        service.ready();
        assert!(
            data.join("os3").is_dir(),
            "the data is where the config says"
        );
        file::write(&mnt.join("f"), "x");
        assert_eq!(
            slabfs(["servers", "--json", mnt.to_str().expect("text")])
                .ok()
                .json()
                .as_array()
                .expect("servers")
                .len(),
            3
        );
        service.stop();
    }
    // Flags override the config.
    args.insert(3, "--data".to_owned());
    args.insert(4, area.at("other").display().to_string());
    let mut service = slabfs_tests::Service::start(area.path(), "up", &args);
    service.ready();
    assert!(!mnt.join("f").exists() && area.at("other").is_dir());
    service.stop();
    assert!(!mounts::is_mounted(&mnt));
}

#[test]
fn in_the_background_and_umount() {
    needs_mount!();
    let area = Area::new();
    let (mnt, data, log) = (area.mkdir("m"), area.at("d"), area.at("log"));
    let path = |path: &std::path::Path| path.display().to_string();
    struct Taken<'a>(&'a std::path::Path);
    impl Drop for Taken<'_> {
        fn drop(&mut self) {
            mounts::detach(self.0);
        }
    }
    let _taken = Taken(&mnt);
    let start = || {
        slabfs([
            "up",
            "--daemon",
            "--data",
            &path(&data),
            "--log-file",
            &path(&log),
            &path(&mnt),
        ])
    };
    let said = start().ok();
    assert!(said.text().contains("ready:"), "{}", said.report());
    assert!(
        mounts::is_mounted(&mnt),
        "it is there when the command returns"
    );
    file::write(&mnt.join("f"), vec![5; 400_000]);
    let again = start().fails(1, &[]);
    assert!(
        again.stderr.contains("busy") || again.stderr.contains("locked"),
        "{}",
        again.report()
    );
    // In use: refused, and the message names the process that uses it.
    let open = file::open(&mnt.join("f"));
    slabfs(["umount", &path(&mnt)]).fails(1, &["in use", &std::process::id().to_string()]);
    drop(open);
    slabfs(["umount", &path(&mnt)]).ok();
    assert!(!mounts::is_mounted(&mnt));
    // Its process has ended, so another one can use the data.
    start().ok();
    assert_eq!(file::read(&mnt.join("f")), vec![5; 400_000]);
    slabfs(["umount", &path(&mnt)]).ok();
    slabfs(["umount", &path(&mnt)]).fails(1, &["nothing is mounted"]);
    let log = std::fs::read_to_string(&log).expect("the log");
    assert!(!log.is_empty() && !log.contains("panicked"), "{log}");
}

/// A mount with another one below it is in use, by no program.
#[test]
fn umount_names_the_mounts_below() {
    needs_mount!();
    let (outer, inner) = (Up::start(), Area::new());
    let (mnt, below) = (outer.mnt().display().to_string(), outer.at("below"));
    std::fs::create_dir(&below).expect("a directory");
    let (data, below) = (
        inner.at("d").display().to_string(),
        below.display().to_string(),
    );
    let args = ["up", "--data", &data, &below].map(str::to_owned);
    let mut service = Service::start(inner.path(), "below", &args);
    service.ready();
    for more in [&[][..], &["--force"]] {
        slabfs([&["umount", &mnt][..], more].concat())
            .fails(1, &["other mounts below it", &below, "unmount them first"]);
    }
    slabfs(["umount", &below]).ok();
    assert_eq!(service.wait(), 0);
    slabfs(["umount", &mnt]).ok();
}

/// A failed start in the background reports the error, with its status.
#[test]
fn in_the_background_without_success() {
    needs_mount!();
    let area = Area::new();
    let (mnt, data) = (
        area.at("none").display().to_string(),
        area.at("d").display().to_string(),
    );
    slabfs([
        "up",
        "--daemon",
        "--data",
        &data,
        "--log-file",
        &area.at("l").display().to_string(),
        &mnt,
    ])
    .fails(1, &["mkdir"]);
}

#[test]
fn info_for_people_and_programs() {
    needs_mount!();
    let up = Up::start();
    let object = up.at("a");
    create(
        &object,
        "0,16",
        "f4",
        &[
            "--max-dims",
            "unlimited,16",
            "--fill",
            "nan",
            "--codec",
            "shuffle+zstd:3",
        ],
    );
    file::write(&object, [7; 128]);
    let json = info(&object);
    assert_eq!(json["kind"], "array");
    assert_eq!(json["dims"], serde_json::json!([2, 16]));
    assert_eq!(json["max_dims"], serde_json::json!([null, 16]));
    assert_eq!(
        (
            json["dtype"].as_str(),
            json["codec"].as_str(),
            json["layout"].as_str()
        ),
        (Some("f4"), Some("shuffle+zstd:3"), Some("aligned"))
    );
    assert_eq!(
        (
            json["size"].as_u64(),
            json["chunks"].as_u64(),
            json["fill"].as_str()
        ),
        (Some(128), Some(1), Some("nan"))
    );
    let text = slabfs(["info", object.to_str().expect("text")]).ok();
    for word in ["f4", "2,16", "shuffle+zstd:3", "aligned", "nan"] {
        assert!(text.text().contains(word), "{word}:\n{}", text.text());
    }
}

#[test]
fn set_changes_what_may_be_changed() {
    needs_mount!();
    let up = Up::start();
    let raw = up.at("raw");
    let bytes = Random::new(95).bytes(4800);
    file::write(&raw, &bytes);
    let path = raw.to_str().expect("text");
    slabfs(["set", path, "--dims", "30,40", "--dtype", "f4"]).ok();
    assert_eq!(info(&raw)["dims"], serde_json::json!([30, 40]));
    assert_eq!(file::read(&file::named(&raw, "@[29,39]")), &bytes[4796..]);
    slabfs(["set", path, "--dims", "20,40"]).ok();
    assert_eq!(file::read(&raw), &bytes[..3200]);
    slabfs(["set", path, "--dims", "31,40"]).fails(1, &["max dim"]);
    slabfs(["set", path, "--dtype", "f8"]).fails(1, &[]);
    assert_eq!(file::read(&raw), &bytes[..3200]);
}

#[test]
fn an_empty_grid_is_drawn_empty() {
    needs_mount!();
    let up = Up::with(&["--servers", "2"]);
    for grid in ["grid:2,5", "grid:1,1"] {
        let object = up.at(grid.replace(':', "-"));
        create(&object, "8,10", "i4", &["--layout", grid]);
        let path = object.to_str().expect("text");
        let text = slabfs(["layout", path]).ok();
        assert!(
            text.text().contains("nothing is stored"),
            "{}",
            text.report()
        );
        assert_eq!(info(&object)["chunks"], 0);
        // Four elements in the middle of the array.
        file::write(&file::named(&object, "@[1:3,4:6]"), [1; 16]);
        assert_eq!(info(&object)["chunks"], 4, "{grid}");
        let text = slabfs(["layout", path]).ok();
        assert!(text.text().contains(". . "), "{}", text.report());
        let chunks = layout(&object)["chunks"].as_array().expect("chunks").len();
        assert_eq!(chunks, 4, "{grid}");
    }
}

#[test]
fn the_layout_drawn() {
    needs_mount!();
    let up = Up::with(&["--servers", "3"]);
    let object = up.at("a");
    create(&object, "16,16", "f4", &[]);
    for select in ["@[0:10,0:9]", "@[0:7,9:16]", "@[10:16,0:9]", "@[7:16,9:16]"] {
        let target = file::named(&object, select);
        let len = target.metadata().expect("metadata").len() as usize;
        file::write(&target, vec![1; len]);
    }
    let path = object.to_str().expect("text");
    let text = slabfs(["layout", path]).ok();
    for shape in ["10 x 9", "7 x 7", "6 x 9", "9 x 7"] {
        assert!(text.text().contains(shape), "{shape}:\n{}", text.text());
    }
    let svg_path = up.area().at("a.svg");
    slabfs(["layout", path, "--svg", svg_path.to_str().expect("text")]).ok();
    let svg = std::fs::read_to_string(&svg_path).expect("the drawing");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    slabfs(["layout", path, "--svg", path]).fails(1, &["overwrite the array", ".svg"]);
    for shape in ["10 x 9", "7 x 7", "6 x 9", "9 x 7"] {
        assert!(svg.contains(shape), "{shape}");
    }
    // A few bytes may all be on the server that has the fewest; more than that are spread.
    let large = up.at("large");
    create(&large, "512,512", "f4", &[]);
    for row in 0..4 {
        let part = format!("@[{}:{},:]", row * 128, row * 128 + 128);
        file::write(&file::named(&large, &part), vec![1; 128 * 512 * 4]);
    }
    let json = layout(&large);
    let servers: std::collections::BTreeSet<u64> = json["chunks"]
        .as_array()
        .expect("chunks")
        .iter()
        .map(|chunk| chunk["server"].as_u64().expect("a server"))
        .collect();
    // Which servers is up to the placement; so few bytes may be together.
    let known = servers.iter().all(|server| (1..=3).contains(server));
    assert!(known && !servers.is_empty(), "a server each: {json}");
    for (name, dims, more) in [
        ("r1", "100", vec![]),
        ("r3", "6,7,8", vec!["--axes", "0,2", "--at", "3"]),
        ("r0", "scalar", vec![]),
    ] {
        let object = up.at(name);
        create(&object, dims, "u2", &[]);
        let len = object.metadata().expect("metadata").len() as usize;
        file::write(&object, vec![1; len]);
        let object = object.display().to_string();
        slabfs([&["layout", &object][..], &more].concat()).ok();
        slabfs(
            [
                &["layout", &object, "--svg", svg_path.to_str().expect("text")][..],
                &more,
            ]
            .concat(),
        )
        .ok();
    }
    file::write(&up.at("plain"), "x");
    slabfs(["layout", up.at("plain").to_str().expect("text")]).ok();
    create(&up.at("empty"), "4,4", "f4", &[]);
    slabfs(["layout", up.at("empty").to_str().expect("text")]).ok();
    // The reader may close the pipe.
    shell(
        up.area().path(),
        &format!(
            "'{}' layout '{path}' | head -n 1",
            slabfs_tests::binary::path().display()
        ),
    )
    .ok();
}

#[test]
fn status_shows_what_is_wrong() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 1);
    let mnt = cluster.mnt(0).display().to_string();
    file::write(&cluster.at(0, "f"), vec![7; 100_000]);
    let shown = slabfs(["status", &mnt]).ok();
    for line in [
        "2, all online",
        "this is the only mount",
        "objects",
        "/s to data servers",
    ] {
        assert!(shown.text().contains(line), "{line}: {}", shown.text());
    }
    // Mounts of other tests may end meanwhile.
    let all = slabfs(["status"]);
    assert!(all.text().contains(&mnt), "{}", all.text());
    let json = slabfs(["status", &mnt, "--json"]).ok().json();
    assert_eq!(json["status"]["servers"].as_array().map(Vec::len), Some(2));
    cluster.kill_server(1);
    poll::until_true("a server is away", || {
        slabfs(["status", &mnt]).ok().text().contains("AWAY: 2")
    });
    let watch = format!(
        "'{}' stats --watch 100ms '{mnt}' | head -n 3",
        binary::path().display()
    );
    let lines = shell(cluster.area().path(), &watch).ok();
    assert_eq!(lines.text().lines().count(), 3, "{}", lines.text());
    let nowhere = cluster.area().path().display().to_string();
    slabfs(["status", &nowhere]).fails(1, &["is not on a slabfs mount"]);
}

#[test]
fn stats_count() {
    needs_mount!();
    let up = Up::start();
    let object = up.at("a");
    create(&object, "64,64", "f8", &["--layout", "grid:16,16"]);
    let before = stats(up.mnt());
    file::write(&file::named(&object, "@[8:24,0:16]"), [1; 2048]);
    file::read(&file::named(&object, "@[8:24,0:8]"));
    let after = stats(up.mnt());
    let grew = |side: &str, key: &str| {
        after[side][key].as_u64().expect(key) - before[side][key].as_u64().expect(key)
    };
    assert_eq!(
        (grew("write", "transfers"), grew("write", "bytes_selected")),
        (1, 2048)
    );
    assert_eq!(
        (
            grew("write", "server_ops"),
            grew("write", "bytes_sent"),
            grew("write", "bytes_touched")
        ),
        (2, 2048, 4096)
    );
    assert_eq!(grew("read", "bytes_selected"), 1024);
    let text = slabfs(["stats", up.mnt().to_str().expect("text")]).ok();
    for word in [
        "transfers",
        "server_ops",
        "bytes_selected",
        "bytes_sent",
        "bytes_touched",
        "%",
    ] {
        assert!(text.text().contains(word), "{word}:\n{}", text.text());
    }
}

/// A read-only mount: every change fails with `EROFS`.
#[test]
fn read_only() {
    needs_mount!();
    let mut up = Up::start();
    create(&up.at("a"), "4", "u1", &[]);
    file::write(&up.at("f"), "data");
    let f = up.at("f").display().to_string();
    slabfs(["tag", &f, "step=3", &format!("long={}", "x".repeat(20_000))]).ok();
    up.stop();
    up.try_start(&["--read-only"]).expect("up");
    assert_eq!(file::read(&up.at("f")), b"data");
    let refused =
        |result: std::io::Result<()>| assert_eq!(file::errno(result), nix::errno::Errno::EROFS);
    refused(std::fs::write(up.at("new"), "x"));
    refused(std::fs::write(up.at("f"), "x"));
    refused(std::fs::write(file::named(&up.at("a"), "@[0]"), "x"));
    refused(std::fs::remove_file(up.at("f")));
    refused(std::fs::rename(up.at("f"), up.at("g")));
    refused(std::fs::create_dir(up.at("d")));
    refused(file::set_xattr(&up.at("f"), "user.x", "y", 0));
    slabfs(["set", up.at("a").to_str().expect("text"), "--dims", "2"]).fails(1, &["read-only"]);
    // The mark would stop new chunks of all mounts.
    let mnt = up.mnt().to_str().expect("text");
    slabfs(["drain", "1", mnt]).fails(1, &["read-only"]);
    assert_eq!(servers(up.mnt())[0]["draining"], false);
    // Requests that only read succeed, and those that change fail.
    let found = slabfs(["find", "has step", "--in", mnt]).ok();
    assert_eq!(found.text(), format!("{mnt}/f\n"));
    let f = up.at("f").display().to_string();
    assert_eq!(
        slabfs(["tags", &f]).ok().text(),
        format!("long={}\nstep=3\n", "x".repeat(20_000))
    );
    slabfs([
        "find",
        &format!("long = {}", "y".repeat(60_000)),
        "--in",
        mnt,
    ])
    .ok();
    slabfs(["tag", &f, "step=4"]).fails(1, &["read-only"]);
    slabfs([
        "create",
        &up.at("b").display().to_string(),
        "--like",
        &up.at("a").display().to_string(),
        "--tag",
        "x=1",
    ])
    .fails(1, &["read-only"]);
    slabfs(["find", "step = = 3", "--in", mnt]).fails(2, &["^"]);
    assert_eq!(file::read(&up.at("f")), b"data");
    slabfs(["umount", mnt]).ok();
    up.stopped();
}

/// The log is for people: it reports starts and ends, and no internals.
#[test]
fn the_log_is_readable() {
    needs_mount!();
    let mut up = Up::start();
    file::write(&up.at("f"), "x");
    up.stop();
    let log = up.log();
    assert!(log.lines().count() < 30, "{log}");
    assert!(log.contains("SIGTERM") && log.contains("stopped"), "{log}");
    poll::until_true("quiet", || !log.contains("panicked"));
    up.try_start(&["--quiet"]).expect("up");
    let before = up.log().len();
    file::write(&up.at("g"), "x");
    up.stop();
    assert_eq!(up.log().len(), before, "{}", up.log());
}

/// The reader of its stderr has exited (`slabfs up mnt 2>&1 | head`): the service continues, and stops on a
/// signal.
#[test]
fn logging_without_a_reader() {
    needs_mount!();
    let area = Area::new();
    let mnt = area.mkdir("mnt");
    let mut command = std::process::Command::new("bash");
    command
        .args(["-c", r#"exec "$0" -v "$@" 2> >(exec true)"#])
        .arg(slabfs_tests::binary::path())
        .args(["up", "mnt", "--data", "data"]);
    let mut up = slabfs_tests::Service::start_command(area.path(), "up", command);
    up.ready();
    file::write(&mnt.join("f"), "written");
    assert_eq!(file::read(&mnt.join("f")), b"written");
    up.signal(nix::sys::signal::Signal::SIGTERM);
    assert_eq!(up.wait(), 0);
    assert!(!mounts::is_mounted(&mnt));
}

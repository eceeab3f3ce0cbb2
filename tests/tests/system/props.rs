//! Properties: defaults of containers, arrays like others, many objects in one request, tags; and dims that
//! change while others have the array open.

use std::ffi::OsStr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use slabfs_tests::tool::{Outcome, create, info, run, shell};
use slabfs_tests::{Cluster, Up, file, needs_mount, poll, slabfs};

fn command(mnt: &Path, line: &str) -> Outcome {
    let binary = slabfs_tests::binary::path();
    run(Command::new("sh")
        .args(["-c", line])
        .env("S", binary)
        .current_dir(mnt))
}

fn tags(path: &Path) -> Value {
    slabfs([OsStr::new("tags"), "--json".as_ref(), path.as_os_str()])
        .ok()
        .json()
}

#[test]
fn containers_supply_defaults() {
    needs_mount!();
    let mut up = Up::start();
    let mnt = up.mnt().to_owned();
    std::fs::create_dir(mnt.join("run")).expect("made");
    let set = "$S set run --default-dtype f4 --default-fill nan --default-codec lz4 --default-placement region --default-tag project=climate --default-tag step=3";
    command(&mnt, set).ok();
    let output = command(&mnt, "$S info run").ok();
    for line in ["default dtype:", "default tag project:", "container"] {
        assert!(output.text().contains(line), "{}", output.text());
    }
    std::fs::create_dir(mnt.join("run/in")).expect("made");
    command(&mnt, "$S create run/in/a --dims 4,4").ok();
    let a = info(&mnt.join("run/in/a"));
    assert_eq!(
        [&a["dtype"], &a["fill"], &a["codec"], &a["placement"]],
        ["f4", "nan", "lz4", "region"].map(Value::from).each_ref()
    );
    assert_eq!(
        tags(&mnt.join("run/in/a")),
        json!({"project": "climate", "step": 3})
    );
    // Ordinary files are not affected byte for byte.
    file::write(&mnt.join("run/text"), "hello");
    assert_eq!(file::read(&mnt.join("run/text")), b"hello");
    let text = info(&mnt.join("run/text"));
    assert_eq!(
        [&text["kind"], &text["codec"]],
        [&json!("byte object"), &json!("lz4")]
    );
    // The same by hand; given properties have priority.
    command(
        &mnt,
        "touch run/b && setfattr -n user.slabfs.dims -v 2 run/b",
    )
    .ok();
    assert_eq!(info(&mnt.join("run/b"))["dtype"], "f4");
    command(
        &mnt,
        "$S create run/c --dims 4,4 --dtype i2 --layout grid:2,2",
    )
    .ok();
    let c = info(&mnt.join("run/c"));
    assert_eq!([&c["fill"], &c["codec"]], [&json!("0"), &json!("none")]);
    // A copy of the container has them too, and so has a restarted mount.
    command(&mnt, "cp -a run copy").ok();
    up.restart();
    for name in ["run", "copy"] {
        let dir = mnt.join(name);
        let output = slabfs([OsStr::new("info"), "--json".as_ref(), dir.as_os_str()]);
        let defaults = &output.ok().json()["defaults"];
        assert_eq!(defaults["dtype"], "f4", "{name}: {defaults}");
        assert_eq!(defaults["tags"]["step"], 3, "{name}: {defaults}");
    }
    command(
        &mnt,
        "$S set run --clear-default dtype --clear-default tag:step",
    )
    .ok();
    command(&mnt, "$S create run/d --dims 4").fails(2, &["--dtype", "no default"]);
    command(&mnt, "setfattr -x user.slabfs.defaults run").ok();
    assert!(command(&mnt, "getfattr -d run").ok().text().is_empty());
    command(&mnt, "$S set run --dims 4").fails(1, &["directory", "--default-dtype"]);
    for (wrong, words) in [
        ("$S set run --default-dtype q9", &["q9"][..]),
        ("$S set run --clear-default dims", &["dims", "codec"]),
        ("$S set run/b --default-dtype f4 --dims 4", &["directories"]),
        (
            "$S set run --default-codec lz4 --default-layout canonical",
            &["aligned"],
        ),
    ] {
        command(&mnt, wrong).fails(2, words);
    }
    command(&mnt, "$S set run/b --default-dtype f4").fails(1, &["not a directory"]);
}

#[test]
fn an_array_like_another() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    let more = ["--max-dims", "unlimited,6", "--fill", "7", "--codec", "lz4"];
    create(&mnt.join("a"), "4,6", "i2", &more);
    command(mnt, "$S tag a step=3 'note:text=5'").ok();
    command(mnt, "$S create b --like a").ok();
    let (a, b) = (info(&mnt.join("a")), info(&mnt.join("b")));
    for key in [
        "dims",
        "max_dims",
        "dtype",
        "fill",
        "layout",
        "codec",
        "placement",
    ] {
        assert_eq!(a[key], b[key], "{key}");
    }
    assert_eq!(tags(&mnt.join("b")), json!({}));
    command(
        mnt,
        "$S create c --like a --tags --tag step=4 --dims 9 --dtype u1",
    )
    .ok();
    let c = info(&mnt.join("c"));
    assert_eq!([&c["max_dims"], &c["fill"]], [&json!([9]), &json!("7")]);
    assert_eq!(tags(&mnt.join("c")), json!({"note": "5", "step": 4}));
    // A selection will do.
    command(mnt, "$S create d --like 'a@[0:2,3]'").ok();
    assert_eq!(info(&mnt.join("d"))["dims"], json!([2, 1]));
    file::write(&mnt.join("plain"), "x");
    command(mnt, "$S create e --like plain").fails(1, &["byte object"]);
    command(mnt, "$S create b --like a").fails(1, &["exists already"]);
    command(mnt, "$S create b --like a --tag x=1").fails(1, &["exists already"]);
}

#[test]
fn many_objects_in_one_request() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    let mut lines = String::new();
    for i in 0..2000 {
        let object = json!({"path": format!("s{}/o{i}", i % 3), "dims": [4, i + 1], "dtype": "f4", "tags": {"i": i}});
        lines += &format!("{object}\n");
    }
    let list = up.area().at("list");
    file::write(&list, &lines);
    std::fs::create_dir(mnt.join("run")).expect("made");
    let line = format!("$S create run --from-json {} --parents", list.display());
    // A name that the kernel has just looked up in vain.
    assert!(!mnt.join("run/s1/o1000").exists());
    command(mnt, &line).ok();
    assert_eq!(info(&mnt.join("run/s1/o1000"))["dims"], json!([4, 1001]));
    assert_eq!(tags(&mnt.join("run/s1/o1000")), json!({"i": 1000}));
    assert_eq!(
        std::fs::read_dir(mnt.join("run/s0")).expect("read").count(),
        667
    );
    // All of a batch or none of it, with the number of the wrong line.
    let taken = "printf '{\"path\":\"new\",\"dims\":[1],\"dtype\":\"f4\"}\\n\\n{\"path\":\"s0/o0\",\"dims\":[1],\"dtype\":\"f4\"}\\n' | $S create run --from-json -";
    command(mnt, taken).fails(1, &["line 3", "no object was made", "o0", "exists"]);
    assert!(!mnt.join("run/new").exists());
    for (object, words) in [
        ("{\"path\":\"x\",\"dims\":[1]}", &["line 1", "dtype"][..]),
        ("{\"path\":\"x\",\"dimz\":[1]}", &["line 1", "dimz"]),
        (
            "{\"path\":\"x\",\"dims\":[1],\"dtype\":\"f4\",\"fill\":\"red\"}",
            &["line 1", "fill"],
        ),
        (
            "{\"path\":\"x\",\"tags\":{\"a\":null}}",
            &["line 1", "tag a"],
        ),
        ("{\"path\":\"a/b\",\"dims\":[1]}", &["line 1"]),
        ("{\"path\":", &["line 1", "JSON"]),
        ("[{\"path\":\"x\"},3]", &["object 2"]),
    ] {
        let line = format!("printf '%s\\n' '{object}' | $S create run --from-json -");
        let status = if object.contains("a/b") { 1 } else { 2 };
        command(mnt, &line).fails(status, words);
    }
    assert!(!mnt.join("run/x").exists());
    // A user without permission creates nothing.
    let json = r#"{"op":"create","objects":[{"path":"run/s0"}]}"#;
    command(mnt, &format!("$S call . '{json}'")).fails(1, &["exists"]);
}

#[test]
fn tags_by_command_and_by_attribute() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    for name in ["a", "b", "c"] {
        file::write(&mnt.join(name), "");
    }
    command(mnt, "$S tag a x=1 y=2.5 'l=[1,\"q\"]' t:text=7 --to b c .").ok();
    let all = json!({"x": 1, "y": 2.5, "l": [1, "q"], "t": "7"});
    for name in ["a", "b", "c", "."] {
        assert_eq!(tags(&mnt.join(name)), all, "{name}");
    }
    let shown = command(mnt, "$S tags a").ok();
    assert_eq!(shown.text(), "l=[1,\"q\"]\nt:text=7\nx=1\ny=2.5\n");
    assert!(
        command(mnt, "getfattr -d a")
            .ok()
            .text()
            .contains("user.x=\"1\"")
    );
    command(mnt, "setfattr -n user.z -v 9 a && $S untag a x --from b").ok();
    assert_eq!(command(mnt, "$S tags a z").ok().text(), "z=9\n");
    // What is there is removed, and the rest is named.
    command(mnt, "$S untag a nothing t --from b c").fails(1, &["a has no tag nothing", "c has no"]);
    command(mnt, "$S tags a t").fails(1, &["no tag t"]);
    command(mnt, "$S untag a y=2.5").fails(2, &["by its key", "untag a y"]);
    command(mnt, "$S tags a y").ok();
    command(mnt, "$S tag .slabfs y=1").fails(1, &[".slabfs belongs to the mount"]);
    command(mnt, "$S tags b x").fails(1, &["no tag x"]);
    // One of several is wrong: none is changed.
    command(mnt, "$S tag a w=1 --to nothing").fails(1, &["does not exist"]);
    command(mnt, "$S tags a w").fails(1, &["no tag w"]);
    for (wrong, words) in [
        ("$S tag a w", &["key=value"][..]),
        ("$S tag a slabfs.x=1", &["slabfs."]),
        ("$S tag a w:int=x", &["not an integer"]),
        ("$S tag a w=1 w=2", &["twice"]),
        ("$S tag a", &["KEY=VALUE"]),
    ] {
        command(mnt, wrong).fails(2, words);
    }
    shell(up.area().path(), "touch elsewhere").ok();
    let elsewhere = up.area().at("elsewhere");
    let line = format!("$S tag {} a=1", elsewhere.display());
    command(mnt, &line).fails(1, &["not on a slabfs mount"]);
}

#[test]
fn tagged_objects_are_found() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    let mut lines = String::new();
    for i in 0..3000 {
        let tags = json!({"i": i, "mod": i % 7, "note": format!("n{i}x")});
        let object = json!({"path": format!("s{}/o{i:04}", i % 3), "dims": [4, i + 1], "dtype": "f4", "tags": tags});
        lines += &format!("{object}\n");
    }
    let list = up.area().at("list");
    file::write(&list, &lines);
    command(
        mnt,
        &format!("$S create . --from-json {} -p", list.display()),
    )
    .ok();
    let found = |line: &str| -> Vec<String> {
        let output = command(mnt, line).ok();
        output.text().lines().map(str::to_owned).collect()
    };
    assert_eq!(found("$S find 'i = 1234'"), ["s1/o1234"]);
    assert_eq!(found("$S find 'i in 10..12' --in s1"), ["s1/o0010"]);
    assert_eq!(found("cd s1 && $S find 'i in 10..12'"), ["o0010"]);
    let line = format!(
        "$S find 'note = *99x and i < 200' --in {} --sort i",
        mnt.display()
    );
    let wanted = [99, 199].map(|i| format!("{}/s{}/o{i:04}", mnt.display(), i % 3));
    assert_eq!(found(&line), wanted);
    assert_eq!(found("$S find 'mod = 3' --count"), ["429"]);
    assert_eq!(
        found("$S find 'has i' --sort i --limit 2"),
        ["s0/o0000", "s1/o0001"]
    );
    assert_eq!(found("$S find 'has i' --limit 5").len(), 5);
    let mut parts: Vec<String> = (0..4)
        .flat_map(|part| found(&format!("$S find 'has i' --part {part}/4")))
        .collect();
    parts.sort();
    parts.dedup();
    assert_eq!(parts.len(), 3000);
    let hit = command(mnt, "$S find 'i = 7' --json").ok().json();
    assert_eq!(
        [&hit["path"], &hit["tags"]["note"]],
        [&json!("s1/o0007"), &json!("n7x")]
    );
    let zero = command(mnt, "$S find 'mod = 3 and i < 20' --paths0 | xargs -0 ls").ok();
    assert_eq!(zero.text(), "s0/o0003\ns1/o0010\ns2/o0017\n");
    // As soon as a tag is set, and no longer than that.
    command(mnt, "$S tag s0/o0000 fresh=1").ok();
    assert_eq!(found("$S find 'has fresh'"), ["s0/o0000"]);
    command(mnt, "$S untag s0/o0000 fresh").ok();
    assert!(found("$S find 'has fresh'").is_empty());
    // The caret is below the error.
    let wrong = command(mnt, "$S find 'i = 3 and (mod < 2'").fails(2, &["^"]);
    assert!(
        wrong.stderr.contains("i = 3 and (mod < 2"),
        "{}",
        wrong.stderr
    );
    command(mnt, "$S find 'i = 3' --part 4/4").fails(2, &["4/4"]);
    command(mnt, "$S find 'i = 3' --in nothing").fails(1, &["does not exist"]);
    let elsewhere = up.area().path().display();
    command(mnt, &format!("cd {elsewhere} && $S find 'i = 3'")).fails(1, &["--in"]);
}

/// The other mount sees dims that one mount sets at once, through handles it has open as well.
#[test]
fn dims_change_while_others_have_it_open() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    for layout in ["aligned", "grid:4,4"] {
        let name = &layout[..4];
        let more = ["--max-dims", "12,8", "--fill", "9", "--layout", layout];
        create(&cluster.at(0, name), "4,8", "u1", &more);
        file::write(&cluster.at(0, name), [1; 32]);
        let here = [0, 1].map(|who| file::open(&cluster.at(who, name)));
        let mut seen = [0; 8];
        for handle in &here {
            handle.read_exact_at(&mut seen, 0).expect("read");
            assert_eq!(seen, [1; 8]);
            assert_eq!(handle.read_at(&mut seen, 32).expect("the end"), 0);
        }
        let set = |who: usize, dims: &str| {
            let path = cluster.at(who, name);
            let dims = ["--dims", dims].map(OsStr::new);
            slabfs([OsStr::new("set"), path.as_os_str(), dims[0], dims[1]]).ok();
        };
        set(0, "6,8");
        for (who, handle) in here.iter().enumerate() {
            handle
                .read_exact_at(&mut seen, 40)
                .unwrap_or_else(|error| panic!("{layout}: the new rows on mount {who}: {error}"));
            assert_eq!(seen, [9; 8], "{layout}: mount {who}");
            let len = handle.metadata().expect("metadata").len();
            assert_eq!(len, 48, "{layout}: the open file on mount {who}");
            assert_eq!(info(&cluster.at(who, name))["dims"], json!([6, 8]));
        }
        // Longer again: the other mount writes there at once.
        set(0, "8,8");
        here[1].write_all_at(&[5; 8], 56).expect("written");
        here[1].sync_all().expect("synced");
        poll::until_true("the open file to look again", || {
            here[0].read_exact_at(&mut seen, 56).expect("read");
            seen == [5; 8]
        });
        let error = here[1].write_all_at(&[1; 8], 64).expect_err("past the end");
        assert_eq!(error.raw_os_error(), Some(nix::errno::Errno::EFBIG as i32));
        // Shorter: the part that was cut off is gone for both.
        set(1, "2,8");
        for (who, handle) in here.iter().enumerate() {
            let len = handle.metadata().expect("metadata").len();
            assert_eq!(len, 16, "{layout}: {who}");
            poll::until_true("the end to be where it is", || {
                handle.read_at(&mut seen, 16).expect("read") == 0
            });
        }
        set(0, "3,8");
        here[1].read_exact_at(&mut seen, 16).expect("the new row");
        assert_eq!(seen, [9; 8], "{layout}: fill where data was cut off");
    }
}

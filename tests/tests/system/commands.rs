//! How commands interpret their arguments: tags that are read back unchanged, lists of objects that are refused
//! completely, sort orders, and the difference between wrong usage (status 2) and a refusal (status 1).

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use serde_json::json;
use slabfs_tests::tool::{Outcome, create, run, servers};
use slabfs_tests::{Cluster, Up, file, needs_mount, needs_root, poll};

fn command(dir: &Path, line: &str) -> Outcome {
    let binary = slabfs_tests::binary::path();
    run(Command::new("sh")
        .args(["-c", line])
        .env("S", binary)
        .current_dir(dir))
}

#[test]
fn tags_come_back_as_they_were() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    for name in ["a", "b", "c"] {
        file::write(&mnt.join(name), "");
    }
    // A number in another form is text and a number, and is stored in that form.
    command(mnt, "$S tag a id=007 v=1.10 e=1e3 run:auto=3 t:text=3").ok();
    for query in [
        "id = 7",
        "id = \"007\"",
        "v = 1.1",
        "v = \"1.10\"",
        "e = 1000",
        "run = 3",
        "run = \"3\"",
    ] {
        let found = command(mnt, &format!("$S find '{query}'")).ok();
        assert_eq!(found.text(), "a\n", "{query}");
    }
    assert_eq!(command(mnt, "$S find 't = 3'").ok().text(), "");
    let set = |name: &str, value: &[u8]| {
        file::set_xattr(&mnt.join("a"), &format!("user.{name}"), value, 0).expect("a tag");
    };
    set("auto", b"9");
    set("autotext", b"climate");
    set("a=b", b"1");
    set("x:int", b"1");
    set("user.y", b"1");
    set("two\nlines", b"it's\none");
    command(
        mnt,
        "$S tag a 'l=[1, 2.5, \"q\"]' low:float=-inf 'open:text=[1,' by:bytes=00ff user.z=3",
    )
    .ok();
    let shown = command(mnt, "$S tags a").ok();
    for line in [
        "auto=9",
        "autotext=climate",
        "id=007",
        "run:auto=3",
        "t:text=3",
        "z=3",
        "$'two\\nlines=it\\'s\\none'",
    ] {
        assert!(
            shown.text().lines().any(|shown| shown == line),
            "{line}: {}",
            shown.text()
        );
    }
    let typed = |name: &str| {
        command(mnt, &format!("$S tags {name} --json --typed"))
            .ok()
            .json()
    };
    command(mnt, "$S tags -0 a | xargs -0 $S tag b").ok();
    assert_eq!(typed("b"), typed("a"));
    assert_eq!(typed("a")["id"], json!({"auto": "007"}));
    assert_eq!(typed("a")["t"], json!("3"));
    command(mnt, "$S tags a --typed").fails(2, &["--json"]);
    assert_eq!(command(mnt, "$S tags a user.z").ok().text(), "z=3\n");
    command(mnt, "$S untag a user.z && $S tags a z").fails(1, &["no tag z"]);
    // Also as defaults.
    command(
        mnt,
        "mkdir d && $S set d --default-tag id=007 --default-tag 'l=[1,2.5]' && touch d/f",
    )
    .ok();
    assert_eq!(
        command(mnt, "$S tags d/f").ok().text(),
        "id=007\nl=[1,2.5]\n"
    );
    let output = command(mnt, "$S info d").ok();
    assert!(
        output.text().contains("default tag l:  [1,2.5]\n"),
        "{}",
        output.text()
    );
    command(mnt, "cp -a d copy && touch copy/f").ok();
    assert_eq!(
        command(mnt, "$S find 'id = 7' --in copy").ok().text(),
        "copy/f\n"
    );
    for (wrong, words) in [
        ("$S tag a 'k=[1,'", &["ends with ]", "text"][..]),
        ("$S tag a 'k=[1,]'", &["trailing comma"]),
        ("$S tag a user.slabfs.x=1", &["slabfs set"]),
        ("$S tag a k=1 user.k=2", &["twice"]),
        ("$S set d --default-tag k=1 --default-tag k=2", &["twice"]),
    ] {
        command(mnt, wrong).fails(2, words);
    }
    // Infinities are numbers.
    assert_eq!(command(mnt, "$S find 'low = -inf'").ok().text(), "a\nb\n");
    assert_eq!(
        command(mnt, "$S find 'low < 0 and auto in (8, 9)' --sort path")
            .ok()
            .text(),
        "a\nb\n"
    );
}

#[test]
fn a_list_of_objects_is_refused_before_anything_is_made() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    std::fs::create_dir(mnt.join("run")).expect("made");
    let from = |lines: &str, more: &str| {
        let list = up.area().at("list");
        file::write(&list, lines);
        command(
            mnt,
            &format!("$S create run --from-json {} {more}", list.display()),
        )
    };
    let good = r#"{"path":"new/x","dims":[1],"dtype":"f4"}"#;
    for (line, words) in [
        (r#"{"path":"../esc"}"#, &["..", "leave the directory"][..]),
        (
            r#"{"path":"new/../../esc"}"#,
            &["..", "leave the directory"],
        ),
        (r#"{"path":"/abs"}"#, &["begins with /"]),
        (r#"{"path":"n/"}"#, &["the name of a file"]),
        (r#"{"path":""}"#, &["the name of a file"]),
        (r#"{"path":"new/./x"}"#, &["that of line 1"]),
        (
            r#"{"path":"x","dimz":[1]}"#,
            &["dimz", "dtype, dims, max_dims", "tags"],
        ),
        (
            r#"{"path":"x","tags":{"a":null}}"#,
            &["tag a", "null is not a value; a tag is"],
        ),
        (r#"{"path":"x","dims":[1]}"#, &["needs a dtype"]),
        (
            r#"{"path":"x","dims":[4,4],"dtype":"f4","layout":"grid:2"}"#,
            &["axes"],
        ),
        (r#"{"dims":[1]}"#, &["\"path\" is missing"]),
        ("3", &["an object is written", "not 3"]),
    ] {
        let output =
            from(&format!("{good}\n{line}\n"), "-p").fails(2, &["line 2", "no object was made"]);
        for word in words {
            assert!(output.stderr.contains(word), "{line}: {}", output.stderr);
        }
        assert!(!output.stderr.contains("struct"), "{}", output.stderr);
        let left = std::fs::read_dir(mnt.join("run")).expect("listed").count();
        assert_eq!(left, 0, "{line}");
        assert!(!mnt.join("esc").exists(), "{line}");
    }
    // An error that only the mount can detect leaves no directories either.
    std::fs::create_dir(mnt.join("run/there")).expect("made");
    file::write(&mnt.join("run/there/x"), "");
    let taken = format!("{good}\n{}\n", r#"{"path":"there/x"}"#);
    from(&taken, "-p").fails(1, &["line 2", "exists", "no object was made"]);
    assert!(!mnt.join("run/new").exists());
    let far = format!("{good}\n{}\n", r#"{"path":"y","placement":"server:9"}"#);
    from(&far, "-p").fails(1, &["line 2", "no data server 9"]);
    assert!(!mnt.join("run/new").exists());
    // Nor for a grid that has data, although that does not change its servers.
    file::write(&mnt.join("grid"), "data");
    let set = "$S set grid --placement server:9";
    command(mnt, set).fails(1, &["no data server 9", "slabfs servers"]);
    from(good, "").fails(1, &["line 1", "run/new does not exist", "--parents"]);
    // The number of objects is printed.
    assert_eq!(from(good, "-p").ok().text(), "1 object made\n");
    assert_eq!(from(r#"{"path":"new/y"}"#, "-q").ok().text(), "");
    // Other programs get the same error.
    for path in ["../x", "/x", "x/"] {
        let request = json!({"op": "create", "in": "run", "objects": [{"path": path}]});
        command(mnt, &format!("$S call . '{request}'")).fails(2, &[path]);
    }
}

#[test]
fn hits_in_every_order() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    std::fs::create_dir(mnt.join("z")).expect("made");
    create(
        &mnt.join("z/a"),
        "4,2",
        "f4",
        &["--tag", "t=1", "--tag", "name=3"],
    );
    create(
        &mnt.join("b"),
        "8",
        "u1",
        &["--tag", "t=1", "--tag", "name=1"],
    );
    create(
        &mnt.join("c"),
        "2,9,1",
        "i8",
        &["--tag", "t=1", "--tag", "step=5"],
    );
    let found = |sort: &str| {
        let output = command(mnt, &format!("$S find 't = 1' {sort}")).ok();
        output.text().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    for (sort, order) in [
        ("--sort name", ["z/a", "b", "c"]),
        ("--sort -name", ["c", "b", "z/a"]),
        ("--sort path", ["b", "c", "z/a"]),
        ("--sort path --reverse", ["z/a", "c", "b"]),
        ("--sort dtype", ["z/a", "c", "b"]),
        ("--sort rank", ["b", "z/a", "c"]),
        ("--sort dims[0]", ["c", "z/a", "b"]),
        ("--sort -dims[0]", ["b", "z/a", "c"]),
        ("--sort dims[1]", ["z/a", "c", "b"]),
        ("--sort -dims[1]", ["c", "z/a", "b"]),
        ("--sort -dims[0] -r", ["c", "z/a", "b"]),
        ("--sort size", ["b", "z/a", "c"]),
        ("--sort owner", ["b", "c", "z/a"]),
        ("--sort kind", ["b", "c", "z/a"]),
        ("--sort step", ["c", "b", "z/a"]),
        ("--sort=-step", ["c", "b", "z/a"]),
        ("--sort '\"name\"'", ["b", "z/a", "c"]),
        ("--sort nothing", ["b", "c", "z/a"]),
    ] {
        assert_eq!(found(sort), order, "{sort}");
    }
    assert_eq!(found("--sort -dims[0] --limit 1"), ["b"]);
    for (wrong, words) in [
        ("--sort ''", &["name, path, kind"][..]),
        ("--sort dims", &["dims[0]"]),
        ("--limit -1", &["-1", "0 or more"]),
        ("--reverse", &["--sort"]),
    ] {
        let output = command(mnt, &format!("$S find 't = 1' {wrong}")).fails(2, words);
        assert!(!output.stderr.contains("-- -1"), "{}", output.stderr);
    }
    let hit = command(mnt, "$S find 'name = a' --json").ok().json();
    assert_eq!(
        [&hit["dtype"], &hit["dims"]],
        [&json!("f4"), &json!([4, 2])]
    );
    assert_eq!(
        command(mnt, "$S find 'kind = dir' --sort path").ok().text(),
        ".\nz\n"
    );
    assert_eq!(
        command(mnt, "$S find 'kind = file' --count").ok().text(),
        "3\n"
    );
}

#[test]
fn a_wrong_command_and_a_refusal_have_statuses_of_their_own() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    std::fs::create_dir(mnt.join("d")).expect("made");
    create(&mnt.join("a"), "4,4", "f4", &[]);
    std::fs::write(mnt.join("d/x"), "").expect("written");
    for (wrong, words) in [
        ("$S find 'step = 3..9'", &["with in", "^"][..]),
        ("$S find 'owner = nosuchuser'", &["no user", "^"]),
        ("$S find 'dtype = <f4'", &["quoted", "^"]),
        (
            "$S create 'd/x@[0]' --dims 4 --dtype f4",
            &["begins a selection", "d/x@@[0]"],
        ),
        ("$S create d/y --dims '' --dtype f4", &["--dims", "scalar"]),
        ("$S set a --dims \"$NOTHING\"", &["--dims", "scalar"]),
        ("$S find 'step = 1' --part -1/3", &["--part", "0/4"]),
        (
            "$S set d --default-placement here",
            &["--default-placement"],
        ),
        (
            "$S set d --default-codec lz4 --default-layout canonical",
            &["aligned"],
        ),
        (
            "$S set d --clear-default dims",
            &["--clear-default", "codec"],
        ),
        ("$S fsck --data x --chunks", &["--chunks"]),
        ("$S up --meta-cache 1P m", &["T", "512M"]),
        ("$S up --meta-cache 0.5G m", &["integer", "512M"]),
        ("$S layout a --width -1", &["-1"]),
    ] {
        command(mnt, wrong).fails(2, words);
    }
    for (refused, words) in [
        (
            "$S create d/y --dims 4 --dtype f4 --placement server:9",
            &["no data server 9"][..],
        ),
        (
            "$S create d/y --dims 4 --dtype f4 --placement server:9 --tag t=1",
            &["no data server 9"],
        ),
        (
            "$S set d --default-placement server:77",
            &["no data server 77"],
        ),
        ("$S set a --placement server:77", &["no data server 77"]),
        ("$S drain 9 .", &["no data server 9"]),
        ("$S find 'has x' --in a", &["not a directory"]),
        ("$S set d --dims 4", &["directory", "--default-dtype"]),
        ("$S layout a --axes 0,7", &["--axes"]),
        (
            "$S meta load d/none --data d/md",
            &["does not exist", "meta dump"],
        ),
        ("$S fsck --data d", &["holds nothing of slabfs"]),
    ] {
        let output = command(mnt, refused).fails(1, words);
        assert!(
            !output.stderr.contains("storage failed"),
            "{}",
            output.stderr
        );
    }
    assert!(!mnt.join("d/y").exists());
}

#[test]
fn a_user_without_permission_gets_a_clear_error() {
    needs_root!();
    let up = Up::with(&["--allow-other"]);
    let mode = |path: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(up.at(path), mode).expect("chmod");
    };
    mode("", 0o755);
    std::fs::create_dir(up.at("closed")).expect("made");
    create(&up.at("closed/a"), "4", "f4", &["--tag", "t=1"]);
    create(&up.at("secret"), "4", "f4", &["--tag", "t=1"]);
    chown(up.at("secret"), Some(0), Some(0)).expect("chown");
    mode("secret", 0o600);
    mode("closed", 0o700);
    let other = |line: &str| {
        let binary = slabfs_tests::binary::path();
        let mut command = Command::new("setpriv");
        command.args([
            "--reuid",
            "4001",
            "--regid",
            "4001",
            "--clear-groups",
            "sh",
            "-c",
            line,
        ]);
        run(command.env("S", binary).current_dir(up.mnt()))
    };
    for line in ["find 't = 1' --in closed", "info secret", "layout secret"] {
        let output = other(&format!("$S {line}"));
        output.fails(1, &["Permission denied", "ask its owner"]);
    }
}

#[test]
fn an_empty_server_that_is_stopped_needs_no_draining() {
    needs_mount!();
    let mut cluster = Cluster::start(2, 1);
    let mnt = cluster.mnt(0).to_owned();
    file::write(&cluster.at(0, "f"), vec![7; 100_000]);
    // Servers are numbered in the order in which they register.
    let at = |servers: &[serde_json::Value]| {
        let place = |server: &serde_json::Value| {
            let addr = server["addr"].as_str();
            addr.is_some_and(|addr| addr.ends_with("o1.s"))
        };
        servers.iter().position(place).expect("the server")
    };
    let known = servers(&mnt);
    let drain = format!("$S drain {} . --patience 5s", known[at(&known)]["id"]);
    command(&mnt, &drain).ok();
    cluster.stop_server(1);
    poll::until_true("the server is away", || {
        let known = servers(&mnt);
        known[at(&known)]["online"] == false
    });
    let output = command(&mnt, &drain).ok();
    assert!(
        output.text().contains("is stopped, and nothing is on it"),
        "{}",
        output.text()
    );
    let table = command(&mnt, "$S servers .").ok();
    assert!(table.text().contains("away, draining"), "{}", table.text());
    assert_eq!(file::read(&cluster.at(0, "f")), vec![7; 100_000]);
}

#[test]
fn a_search_that_finds_nothing_names_unknown_tags() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    command(
        mnt,
        "mkdir -p run/d && touch run/a b && $S tag run/a step=3 && $S tag run/d of=dir && $S tag b other=1",
    )
    .ok();
    let said = |line: &str| {
        let output = command(mnt, line).ok();
        (output.text().to_owned(), output.stderr)
    };
    for quiet in [
        "$S find 'step > 9'",
        "$S find 'of = none'",
        "$S find 'other = 1'",
        "$S find 'step = 3 or stpe = 3'",
        "$S find 'stpe = 3' --quiet",
        "$S find 'name = none'",
    ] {
        assert_eq!(said(quiet).1, "", "{quiet}");
    }
    let (found, note) = said("$S find 'stpe > 2 and \"my key\" = x'");
    assert_eq!(found, "");
    assert!(
        note.contains("note: ") && note.contains("tag stpe\n") && note.contains("tag my key\n"),
        "{note}"
    );
    let (found, note) = said("$S find 'other = 1' --in run --count");
    assert_eq!(found, "0\n");
    assert!(note.contains("tag other"), "{note}");
    let (found, note) = said("$S find 'has step' --sort stpe");
    assert_eq!(found, "run/a\n");
    assert!(note.contains("stpe of --sort"), "{note}");
    assert_eq!(said("$S find 'has step' --sort step").1, "");
}

#[test]
fn queries_and_paths_as_people_type_them() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    command(
        mnt,
        "mkdir -p run/d && touch run/d/a && $S tag run/d/a step=3 date=2026-11-02T10:00 && touch -d 2026-11-01T12:30Z run/d/a",
    )
    .ok();
    for (line, found) in [
        ("$S find 'step = 3' --in run//d/", "run/d/a\n"),
        ("$S find 'step = 3' --in ./run/", "./run/d/a\n"),
        ("cd run/d && $S find 'step = 3' --in ..", "../d/a\n"),
        ("$S find 'path = //run/d//a/'", "run/d/a\n"),
        (
            "$S find 'mtime >= 2026-11-01 and mtime < 2026-11-02'",
            "run/d/a\n",
        ),
        ("$S find 'mtime > \"2026-11-01T12:00\"'", "run/d/a\n"),
        ("$S find 'mtime > \"2026-11-01 13:00\"'", ""),
        (
            "$S find 'date >= 2026-11-01 and date < 2026-11-03'",
            "run/d/a\n",
        ),
        (
            "$S find 'date in 2026-11-01..2026-11-02T12:00'",
            "run/d/a\n",
        ),
        ("$S find 'date > 2026-11-02T10:30'", ""),
    ] {
        assert_eq!(command(mnt, line).ok().text(), found, "{line}");
    }
    for (wrong, words) in [
        ("$S find step", &["quotes", "'step > 3'"][..]),
        ("$S find step = 3", &["one argument", "'step = 3'"]),
        ("$S find 'path = /run/../run/d/a'", &["no .. in it"]),
        ("$S find 'path = /run//d*'", &["single slashes"]),
        // An option that is given twice, in any order and form; flags may be repeated.
        (
            "$S find 'has x' --in . --in run",
            &["--in", "multiple times"],
        ),
        (
            "$S create x --dims 4 --dims=5 --dtype u1",
            &["--dims", "multiple times"],
        ),
        ("$S create x --dims unlimited,4 --dtype u1", &["--max-dims"]),
        (
            "$S create x --dims 99999999999999999999 --dtype u1",
            &["too long"],
        ),
        ("$S create q/ --dims 4 --dtype u1", &["ends with a slash"]),
        (
            "$S set run --default-dtype zz",
            &["--default-dtype: \"zz\" is not a dtype"],
        ),
        ("$S drain run .", &["number of a data server"]),
        (
            "$S mount --md unix:x.s --io-timeout 0 m",
            &["too short", "100ms"],
        ),
    ] {
        command(mnt, wrong).fails(2, words);
    }
    command(mnt, "$S find 'has step' --json --json").ok();
    command(mnt, "$S drain . 1").fails(1, &["no other data server"]);
    command(mnt, "$S drain 1 .").fails(1, &["no other data server"]);
    command(mnt, "$S create -p new/e/x --dims 4 --dtype u1 --fill -0").ok();
    command(mnt, "$S create new/none/x --dims 4 --dtype u1")
        .fails(1, &["does not exist", "--parents"]);
    command(mnt, "$S create y --dims 4 --dtype i1 --fill -1").ok();
    let help = command(mnt, "$S create --help").ok();
    assert!(help.text().contains("Required, except"), "{}", help.text());
}

#[test]
fn info_shows_a_directory() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    command(
        mnt,
        "mkdir d && touch d/a d/b && $S tag d project=climate run:text=3 && $S set d --default-dtype f4",
    )
    .ok();
    assert_eq!(
        command(mnt, "$S info d").ok().text(),
        "default dtype: f4\nentries:       2\nkind:          container\ntag project:   climate\ntag run:text:  3\n"
    );
    assert_eq!(
        command(mnt, "$S info d --json").ok().json(),
        json!({
            "kind": "container", "entries": 2, "defaults": {"dtype": "f4"},
            "tags": {"project": "climate", "run": "3"},
        })
    );
    assert_eq!(
        command(mnt, "$S info d/a --json").ok().json()["kind"],
        "byte object"
    );
    command(mnt, "$S create x --like d/a").fails(1, &["byte object"]);
}

/// Progress is for terminals: a pipe gets none of it.
#[test]
fn progress_is_shown_on_terminals_only() {
    needs_mount!();
    let up = Up::start();
    let mnt = up.mnt();
    file::write(&mnt.join("f"), vec![7; 100_000]);
    let output = command(mnt, "$S meta dump . ../piped").ok();
    assert_eq!(output.stderr, "");
    let output = command(mnt, "script -qec \"$S meta dump . ../shown\" /dev/null").ok();
    assert!(
        output.text().contains("dumping [") && output.text().contains(" left"),
        "{:?}",
        output.text()
    );
}

//! Tags by `setfattr`, and searches as folders of links: `.slabfs/find/QUERY/`.

use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use nix::errno::Errno;
use slabfs_tests::file::{self, errno};
use slabfs_tests::{Up, needs_mount, needs_root, tool};

fn tag(path: &Path, name: &str, value: impl AsRef<[u8]>) {
    file::set_xattr(path, &format!("user.{name}"), value, 0).expect("a tag");
}

fn found(up: &Up, query: &str) -> Vec<String> {
    let folder = up.at(".slabfs/find").join(query.replace('/', "%2F"));
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{query}: {error}"));
    let mut names: Vec<String> = entries
        .map(|entry| {
            let name = entry.expect("an entry").file_name();
            name.into_string().expect("UTF-8")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn searches_as_folders() {
    needs_mount!();
    let mut up = Up::with(&["-v"]);
    std::fs::create_dir(up.at("d")).expect("made");
    file::write(&up.at("a"), "first");
    file::write(&up.at("d/50%"), "second");
    tag(&up.at("a"), "step", "7");
    tag(&up.at("d/50%"), "step", "12");
    tag(&up.at("d/50%"), "project", "climate");
    tag(&up.at("d"), "step", "9");
    for _ in 0..2 {
        assert_eq!(found(&up, "step >= 7"), ["a", "d%2F50%25"]);
        assert_eq!(found(&up, "project = *mat*"), ["d%2F50%25"]);
        assert_eq!(found(&up, "path = /d/*"), ["d%2F50%25"]);
        assert_eq!(found(&up, "kind = container and has step"), ["d"]);
        let link = up.at(".slabfs/find/step = 12/d%2F50%25");
        assert_eq!(file::read(&link), b"second");
        assert_eq!(
            std::fs::read_link(&link).expect("a link"),
            Path::new("../../../d/50%")
        );
        up.restart();
    }
    // Changes are seen at once.
    tag(&up.at("a"), "step", "70");
    assert_eq!(found(&up, "step = 7"), [""; 0]);
    assert_eq!(found(&up, "step = 70"), ["a"]);
    std::fs::rename(up.at("d"), up.at("e")).expect("renamed");
    assert_eq!(found(&up, "step = 12"), ["e%2F50%25"]);
    std::fs::remove_file(up.at("e/50%")).expect("removed");
    assert_eq!(found(&up, "step = 12"), [""; 0]);
    file::remove_xattr(&up.at("a"), "user.step").expect("removed");
    assert_eq!(found(&up, "has step"), [""; 0]);
    // An object that is not found is not listed, and nothing can be changed.
    let none = up.at(".slabfs/find/step = 12/a");
    assert_eq!(errno(std::fs::read(none)), Errno::ENOENT);
    assert!(std::fs::write(up.at(".slabfs/find/step = 12/new"), "x").is_err());
    assert!(std::fs::create_dir(up.at(".slabfs/find/x = 1")).is_err());
    // A syntax error is logged, with its position.
    let wrong = up.at(".slabfs/find/step = = 3");
    assert_eq!(errno(std::fs::read_dir(wrong).map(|_| ())), Errno::EINVAL);
    let log = up.log();
    assert!(log.contains("step = = 3") && log.contains('^'), "{log}");
}

#[test]
fn tags_that_are_not_text() {
    needs_mount!();
    let up = Up::with(&["-v"]);
    let path = up.at("a");
    file::write(&path, "");
    tag(&path, "raw", b"\xff\x00\xfe");
    tag(&path, "long", vec![b'x'; 65536]);
    assert_eq!(
        file::get_xattr(&path, "user.raw").expect("bytes"),
        b"\xff\x00\xfe"
    );
    assert_eq!(
        file::get_xattr(&path, "user.long").expect("long").len(),
        65536
    );
    assert_eq!(found(&up, "has raw"), ["a"]);
    assert_eq!(found(&up, "long = xxx*"), ["a"]);
    assert_eq!(found(&up, "long = *xxx"), ["a"]);
    assert_eq!(found(&up, "long = *xxx*"), ["a"]);
    // More than 4 MiB of names are refused. Those of more than 64 KiB are not listed by the kernel.
    let set = |n: usize| file::set_xattr(&path, &format!("user.t{n:0>240}"), b"1", 0);
    let refused = (0..18_000).map(set).find_map(Result::err);
    let refused = refused.and_then(|error| error.raw_os_error());
    assert_eq!(refused, Some(Errno::ENOSPC as i32));
    assert!(up.log().contains("65,536 tags"), "{}", up.log());
    assert_eq!(found(&up, &format!("t{:0>240} = 1", 1000)), ["a"]);
    let listed = std::process::Command::new("getfattr").arg(&path).output();
    let said = String::from_utf8(listed.expect("getfattr").stderr).expect("text");
    assert!(said.contains("Argument list too long"), "{said}");
}

#[test]
fn others_find_what_they_could_list() {
    needs_root!();
    let up = Up::with(&["--allow-other"]);
    let mode = |path: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(up.at(path), mode).expect("chmod");
    };
    mode("", 0o755);
    for (name, group) in [("open", 0), ("group", 4500), ("closed", 0)] {
        std::fs::create_dir(up.at(name)).expect("made");
        chown(up.at(name), None, Some(group)).expect("chown");
        file::write(&up.at(format!("{name}/f")), "");
        tag(&up.at(format!("{name}/f")), "t", "1");
    }
    mode("open", 0o755);
    mode("group", 0o750);
    mode("closed", 0o700);
    let as_user = |uid: &str, groups: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", uid, "--regid", uid]);
        command.args(groups);
        command.args(["ls", ".slabfs/find/t = 1"]);
        let out = tool::run(command.current_dir(up.mnt())).ok();
        out.text().to_owned()
    };
    assert_eq!(as_user("4001", &["--clear-groups"]), "open%2Ff\n");
    assert_eq!(
        as_user("4001", &["--groups", "4500"]),
        "group%2Ff\nopen%2Ff\n"
    );
    assert_eq!(found(&up, "t = 1").len(), 3);
    let stat = ["--reuid", "4001", "--regid", "4001", "--clear-groups"];
    let mut command = Command::new("setpriv");
    command
        .args(stat)
        .args(["stat", ".slabfs/find/t = 1/closed%2Ff"]);
    tool::run(command.current_dir(up.mnt())).fails(1, &["No such file"]);
}

/// Between two pages a caller holds a place in the index; it does not reveal what is there.
#[test]
fn the_place_of_a_next_page_reveals_nothing() {
    needs_mount!();
    let up = Up::start();
    for n in 0..3 {
        let path = up.at(format!("f{n}"));
        file::write(&path, "");
        tag(&path, "hidden-key", "hidden value");
    }
    let page = |after: &serde_json::Value| {
        let request = serde_json::json!({
            "op": "find", "query": "has *den-k*", "limit": 1, "after": after,
        });
        tool::call(up.mnt(), &request)
    };
    let first = page(&serde_json::Value::Null).expect("a page");
    let next = first["next"].as_str().expect("a place").to_owned();
    let hex: String = b"hidden".iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(!next.contains(&hex), "{next}");
    let second = page(&next.clone().into()).expect("the next page");
    assert_ne!(first["hits"][0]["path"], second["hits"][0]["path"]);
    // Only an unchanged place is accepted.
    let last = if next.ends_with('0') { "1" } else { "0" };
    let forged = format!("{}{last}", &next[..next.len() - 1]);
    assert_eq!(errno(page(&forged.into())), Errno::EINVAL);
}

/// A search does not reveal tags that `getfattr` refuses to return.
#[test]
fn tags_require_read_permission() {
    needs_root!();
    let up = Up::with(&["--allow-other"]);
    std::fs::create_dir(up.at("d")).expect("made");
    for (name, bits) in [("secret", 0o600), ("open", 0o644)] {
        let path = up.at(format!("d/{name}"));
        file::write(&path, "");
        tag(&path, "perm", "1");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(bits)).expect("chmod");
    }
    for path in ["", "d"] {
        let bits = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(up.at(path), bits).expect("chmod");
    }
    let stranger = |line: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.args(line);
        tool::run(command.current_dir(up.at("d")))
    };
    let slabfs = slabfs_tests::binary::path();
    let slabfs = slabfs.to_str().expect("UTF-8");
    stranger(&[slabfs, "tags", "secret"]).fails(1, &["secret"]);
    let lines = |line: &[&str]| {
        let mut lines: Vec<String> = stranger(line)
            .ok()
            .text()
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        lines
    };
    for query in ["perm = 1", "perm != 2", "has *er*", "not not has perm"] {
        assert_eq!(lines(&[slabfs, "find", query]), ["open"], "{query}");
        assert_eq!(lines(&[slabfs, "find", query, "--count"]), ["1"], "{query}");
        let links = format!("../.slabfs/find/{query}");
        assert_eq!(lines(&["ls", &links]), ["d%2Fopen"], "{query}");
    }
    let found = ["find", "not perm = 2", "--sort", "perm"];
    assert_eq!(
        stranger(&[&[slabfs], &found[..]].concat()).ok().text(),
        "open\nsecret\n"
    );
    let hit = stranger(&[slabfs, "find", "name = sec*", "--json"])
        .ok()
        .json();
    assert_eq!(hit["tags"], serde_json::json!({}));
    let own = tool::slabfs([
        "find",
        "perm = 1",
        "--count",
        "--in",
        up.mnt().to_str().expect("UTF-8"),
    ]);
    assert_eq!(own.ok().text(), "2\n");
}

#[test]
fn the_index_is_derived() {
    needs_mount!();
    let mut up = Up::start();
    let many = 300;
    for n in 0..many {
        let path = up.at(format!("f{n}"));
        file::write(&path, "");
        tag(&path, "n", n.to_string());
    }
    file::sync_dir(up.mnt()).expect("synced");
    let all = |up: &Up| found(up, &format!("n in 0..{many}")).len();
    assert_eq!(all(&up), many);
    // Killed: the index is completed from the journal.
    up.kill9();
    up.start_again();
    assert_eq!(all(&up), many);
    let index = up.data().join("md/index");
    assert!(index.is_dir(), "{}", index.display());
    // Missing, and damaged: rebuilt, and logged.
    up.stop();
    std::fs::remove_dir_all(&index).expect("removed");
    up.start_again();
    assert_eq!(all(&up), many);
    up.stop();
    for file in std::fs::read_dir(&index).expect("the index") {
        let path = file.expect("a file").path();
        let mut bytes = std::fs::read(&path).expect("bytes");
        bytes.iter_mut().step_by(97).for_each(|byte| *byte ^= 0x55);
        std::fs::write(&path, bytes).expect("spoiled");
    }
    up.start_again();
    assert_eq!(all(&up), many);
    assert!(up.log().contains("was rebuilt"), "{}", up.log());
}

//! Starts that are refused: they name what is wrong, and leave no file, directory or socket behind.

use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::stat::Mode;
use slabfs_tests::cluster::write_key;
use slabfs_tests::{Area, Cluster, Outcome, Up, disk, file, needs_mount, slabfs};

/// All entries below a directory, with the bytes of files.
fn tree(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).expect("a listing") {
            let entry = entry.expect("an entry");
            let kind = entry.file_type().expect("its type");
            let bytes = match kind.is_file() {
                true => std::fs::read(entry.path()).expect("its bytes"),
                false => Vec::new(),
            };
            found.insert(format!("{} {kind:?}", entry.path().display()), bytes);
            if kind.is_dir() {
                dirs.push(entry.path());
            }
        }
    }
    found
}

/// Starts a service in every way: in the foreground and in the background, with its usual log and with another one in
/// a new directory. Each is refused and changes nothing.
#[track_caller]
fn refused(area: &Area, status: i32, words: &[&str], args: &[&str]) {
    let log = area.at("new/logs/log").display().to_string();
    let existing = area.mkdir("logs").join("log").display().to_string();
    for more in [
        &[][..],
        &["--daemon"],
        &["--log-file", &existing],
        &["--daemon", "--log-file", &log],
    ] {
        let before = tree(area.path());
        let said: Outcome = slabfs([args, more].concat()).fails(status, words);
        assert_eq!(tree(area.path()), before, "{}", said.report());
    }
}

#[test]
fn directories_with_files_of_others() {
    needs_mount!();
    let area = Area::new();
    let papers = area.mkdir("papers");
    file::write(&papers.join("thesis.tex"), "years");
    let (papers, mnt) = (papers.display().to_string(), area.mkdir("m"));
    let (mnt, socket) = (mnt.display().to_string(), area.at("x.s"));
    let socket = format!("unix:{}", socket.display());
    let words = ["not empty", "thesis.tex", "empty directory with --data"];
    let refused = |args: &[&str]| refused(&area, 1, &words, args);
    refused(&["mdserver", "--listen", &socket, "--data", &papers]);
    let md = ["--md", "unix:/nowhere.s"];
    refused(
        &[
            &["objserver", "--listen", &socket, "--data", &papers],
            &md[..],
        ]
        .concat(),
    );
    refused(&["up", "--data", &papers, &mnt]);
    refused(&["up", "--data", &papers, "--listen", &socket, &mnt]);
    // Below the directory of an `up`.
    let data = area.mkdir("d");
    std::fs::create_dir(data.join("os1")).expect("a directory");
    file::write(&data.join("os1/thesis.tex"), "years");
    refused(&["up", "--data", &data.display().to_string(), &mnt]);
    // A new disk is empty but for a directory of its filesystem.
    let mut up = Up::new(Area::new(), &[]);
    std::fs::create_dir_all(up.data().join("lost+found")).expect("a directory");
    up.start_again();
    // Later others may put files there.
    file::write(&up.data().join("README"), "what this is");
    up.restart();
}

#[test]
fn addresses_that_cannot_be() {
    needs_mount!();
    let area = Area::new();
    let (data, mnt) = (area.at("new/d"), area.mkdir("m").display().to_string());
    let data = data.display().to_string();
    let nowhere = format!("unix:{}", area.at("no/such/s.s").display());
    let md = ["mdserver", "--data", &data, "--listen"];
    refused(&area, 1, &["no/such"], &[&md[..], &[&nowhere]].concat());
    let up = ["up", "--data", &data, &mnt, "--listen"];
    refused(&area, 1, &["no/such"], &[&up[..], &[&nowhere]].concat());
    // The address of the second data server is in use.
    let socket = format!("unix:{}", area.at("s.s").display());
    let _other = UnixListener::bind(area.at("s.s.os2")).expect("a socket");
    let up = [&up[..], &[&socket, "--servers", "2"]].concat();
    refused(&area, 1, &["in use", "s.s.os2"], &up);
    let mount = ["mount", "--io-timeout", "300ms", &mnt, "--md", &nowhere];
    refused(&area, 1, &["no/such"], &mount);
}

#[test]
fn wrong_keys() {
    let cluster = Cluster::tcp(0, 0);
    let area = Area::new();
    let wrong = write_key(&area, "wrong", b"another key of thirty-two bytes!");
    let pipe = area.at("pipe");
    nix::unistd::mkfifo(&pipe, Mode::from_bits_truncate(0o600)).expect("a pipe");
    let data = area.at("new/os").display().to_string();
    let socket = format!("unix:{}", area.at("o.s").display());
    for (key, status, word) in [
        (&wrong, 1, "the same shared key"),
        // It has no writer, and must not be waited for.
        (&pipe, 2, "not a regular file"),
    ] {
        let key = key.display().to_string();
        let md = ["--md", cluster.md_addr(), "--key-file", &key];
        let args = ["objserver", "--listen", &socket, "--data", &data];
        refused(&area, status, &[word], &[&args[..], &md].concat());
    }
}

#[test]
fn wrong_data_directories() {
    needs_mount!();
    let area = Area::new();
    let mnt = area.mkdir("m").display().to_string();
    let socket = format!("unix:{}", area.at("x.s").display());
    let file = area.write("file", "text").display().to_string();
    let words = [file.as_str(), "is not a directory", "--data"];
    refused(&area, 1, &words, &["up", "--data", &file, &mnt]);
    let md = ["mdserver", "--listen", &socket, "--data", &file];
    refused(&area, 1, &words, &md);
    // Only one would have been used.
    for command in [
        &["objserver", "--listen", &socket, "--md", &socket][..],
        &["mdserver", "--listen", &socket],
        &["up", &mnt],
    ] {
        let twice = [command, &["--data", &file, "--data=other"]].concat();
        let words = ["--data", "more than once", "objserver"];
        refused(&area, 2, &words, &twice);
    }
    // A flag of the command line still overrides the config file.
    let config = format!("data = {:?}", area.at("other"));
    let config = area.write("config.toml", config).display().to_string();
    refused(
        &area,
        1,
        &words,
        &[&md[..], &["--config", &config]].concat(),
    );
}

/// The metadata directory is lost, or its disk is not mounted.
#[test]
fn chunks_without_their_metadata() {
    needs_mount!();
    let mut up = Up::start();
    file::write(&up.at("f"), vec![7; 1 << 20]);
    up.stop();
    let (md, moved) = (up.data().join("md"), up.area().at("moved"));
    std::fs::rename(&md, &moved).expect("moved");
    let data = up.data().display().to_string();
    let mnt = up.mnt().display().to_string();
    let args = ["up", "--data", &data, &mnt];
    let words = ["md is missing", "os1 holds chunks", "slabfs meta load"];
    refused(up.area(), 1, &words, &args);
    std::fs::create_dir(&md).expect("an empty directory");
    refused(up.area(), 1, &["md holds no metadata", "os1"], &args);
    std::fs::remove_dir(&md).expect("removed");
    std::fs::rename(&moved, &md).expect("moved back");
    up.start_again();
    assert_eq!(file::read(&up.at("f")), vec![7; 1 << 20]);
    assert!(disk::used(up.data()) > 1 << 20);
}

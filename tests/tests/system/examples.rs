//! The examples of all help pages, and those of the README, run as they stand: each ends with status 0.
//!
//! The commands are those for which `slabfs man` makes pages: a new one without examples fails here. In the section
//! `Examples:` of a page a line that is indented by two is one for the shell; lines that are indented further explain
//! it, or continue it after a `\`. Ports are free ones of this machine.

use std::fs::read_to_string;

use slabfs_tests::tool::{Outcome, run};
use slabfs_tests::{Workdir, inputs, needs_mount, slabfs};

/// A mount of three data servers.
const MOUNT: &str = "mkdir mnt && slabfs up --data data --servers 3 mnt --daemon && mkdir mnt/run1";
/// And the files that the pages speak of.
const FILES: &str = "
for name in run1/temp run1/wind run1/rain empty; do slabfs create mnt/$name --dims 16,16 --dtype f4; done
mkdir mnt/run
slabfs create mnt/field --dims 16,16 --dtype f4
slabfs create mnt/steps --dims 0,16 --max-dims unlimited,16 --dtype f4
slabfs create mnt/temp --dims 16,16 --max-dims 64,16 --dtype f4
slabfs create mnt/ocean --dims 2,6,4,6 --dtype i2
slabfs tag mnt/run1/temp project=climate step=3 dt=0.5 checked=yes
slabfs tag mnt/run1/wind mnt/run1/rain checked=yes
head -c 64 /dev/urandom > row.bin
head -c 32000 /dev/urandom > mnt/raw";
/// A metadata service for this machine, and one for others.
const METADATA: &str = "
slabfs mdserver --listen unix:md.sock --data md --daemon
head -c 32 /dev/urandom | base64 > key; chmod 600 key
slabfs mdserver --listen tcp:0.0.0.0:7070 --key-file key --data md2 --daemon";
/// Data servers and mounts of the first.
const CLUSTER: &str = "
slabfs objserver --listen unix:os1.sock --md unix:md.sock --data os1 --daemon
slabfs objserver --listen unix:os2.sock --md unix:md.sock --data os2 --daemon
mkdir mnt mnt2 mnt3";

/// What was done before the examples of a command are typed.
fn before(command: &str) -> String {
    match command {
        "" | "mdserver" | "stop" | "completions" | "man" => String::new(),
        "up" => "mkdir mnt mnt2".to_owned(),
        "objserver" => METADATA.to_owned(),
        "mount" => [METADATA, CLUSTER].concat(),
        "umount" => {
            let mounts =
                "for at in mnt mnt2 mnt3; do slabfs mount --md unix:md.sock $at --daemon; done";
            [METADATA, CLUSTER, "\n", mounts].concat()
        }
        "create" => MOUNT.to_owned(),
        "import" => {
            let file = format!("{}/coads_climatology.cdf", inputs::FERRET);
            format!("{MOUNT}\nfor name in sst a b day-1 day-2; do cp {file} $name.nc; done")
        }
        "collate" => {
            let (python, tiles) = (inputs::PYTHON, inputs::script("tiles.py"));
            let tiles = tiles.display();
            format!("{python} {tiles} make small-1 .\nls ocean.nc.???? > tiles.txt")
        }
        "fsck" => {
            let mounted =
                "slabfs mount --md unix:md.sock mnt --daemon; cp row.bin mnt; slabfs umount mnt";
            let stopped = "for at in md os1 os2; do slabfs stop --data $at; done";
            let up = [MOUNT, FILES, "\nslabfs umount mnt; rmdir mnt"].concat();
            [&up, METADATA, CLUSTER, mounted, stopped].join("\n")
        }
        "meta load" => {
            let dump = "slabfs meta dump mnt monday.dump; gzip -k monday.dump";
            [MOUNT, FILES, dump].join("\n")
        }
        "couple status" | "couple end" => [MOUNT, FILES, "\nslabfs couple mnt/field"].concat(),
        _ => [MOUNT, FILES].concat(),
    }
}

#[test]
fn every_command_has_examples_that_work() {
    needs_mount!();
    let workdir = Workdir::new();
    typed(&workdir, &["slabfs man pages".to_owned()]).ok();
    let pages = workdir.path().join("pages").read_dir().expect("the pages");
    let mut commands: Vec<String> = pages
        .map(|page| page.expect("a page").file_name().into_string())
        .map(|name| name.expect("text").replace("slabfs", "").replace(".1", ""))
        .map(|name| name.replace('-', " ").trim().to_owned())
        .collect();
    commands.sort_unstable();
    assert!(commands.len() > 25, "{commands:?}");
    let mut wrong = String::new();
    for command in &commands {
        let help = slabfs(command.split_whitespace().chain(["--help"])).ok();
        if !command.contains(' ') {
            let short = slabfs(command.split_whitespace().chain(["-h"])).ok();
            assert_eq!(short.text(), help.text(), "one help, as compact as it gets");
        }
        let examples = examples(help.text());
        assert!(!examples.is_empty(), "{command}:\n{}", help.text());
        for line in examples.iter().flat_map(|example| example.lines()) {
            assert!(
                line.len() < 80,
                "{command}: too wide for a terminal: {line}"
            );
        }
        let workdir = Workdir::new();
        typed(&workdir, &[before(command)]).ok();
        let outcome = typed(&workdir, &examples);
        if outcome.status != 0 {
            wrong += &format!("{command}: {}\n\n", outcome.report());
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_readme_is_true() {
    needs_mount!();
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = read_to_string(readme).expect("the page");
    let (_, then) = readme.split_once("\n## Then\n\n").expect("the first steps");
    let lines = then.lines().map_while(|line| line.strip_prefix("    "));
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    assert!(lines.len() > 5, "{lines:?}");
    let workdir = Workdir::new();
    typed(&workdir, &[MOUNT.to_owned()]).ok();
    typed(&workdir, &lines).ok();
}

/// The lines for the shell under `Examples:`, without the two spaces; of the general page those under `First steps:`.
fn examples(help: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let begins = |line: &&str| *line != "Examples:" && *line != "First steps:";
    for line in help.lines().skip_while(begins).skip(1) {
        let Some(line) = line.strip_prefix("  ") else {
            break;
        };
        match found.last_mut() {
            Some(last) if last.ends_with('\\') => *last += &format!("\n{line}"),
            _ if line.starts_with(' ') => {}
            _ => found.push(line.to_owned()),
        }
    }
    found
}

/// Types lines into one shell of the user, until one fails.
fn typed(workdir: &Workdir, lines: &[String]) -> Outcome {
    let mut script = String::from("set -e -x -o pipefail\n");
    for line in lines {
        // It tells about mounts of all tests, which may end meanwhile.
        if line != "slabfs status" {
            // The shell itself does not end if the first of `a && b` fails.
            script += &format!("{line}\n[ $? = 0 ] || exit 1\n");
        }
    }
    for (place, port) in ["7070", "7071"].iter().zip(workdir.ports()) {
        for host in ["0.0.0.0", "node7"] {
            script = script.replace(&format!("{host}:{place}"), &format!("127.0.0.1:{port}"));
        }
    }
    run(workdir.bash().args(["-c", &script]))
}

#[test]
fn examples_are_recognised_by_their_indentation() {
    let help = "Usage: x\n\nExamples:\n  a b   # c\n      says what\n  d |\\\n      e\n      says\n  f\n\nNext: g\n  h\n";
    assert_eq!(examples(help), ["a b   # c", "d |\\\n    e", "f"]);
    assert_eq!(examples("First steps:\n  a\n"), ["a"]);
    assert_eq!(examples("Usage: x\n  a\n"), [] as [&str; 0]);
}

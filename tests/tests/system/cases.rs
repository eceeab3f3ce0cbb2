//! Bugs of other filesystems from public reports, tried on a mount: the scripts of `tests/cases`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use slabfs_tests::{Cluster, Up, needs_mount};

/// Timeout of a script in seconds.
const LIMIT: &str = "300";

#[test]
fn right_on_one_mount() {
    needs_mount!();
    let up = Up::start();
    run(up.mnt(), up.mnt());
}

#[test]
fn right_on_two_mounts_with_servers_of_their_own() {
    needs_mount!();
    let cluster = Cluster::start(2, 2);
    run(&cluster.mnt(0), &cluster.mnt(1));
    cluster_is_sound(cluster);
}

fn cluster_is_sound(mut cluster: Cluster) {
    cluster.stop_and_fsck().ok();
}

fn scripts() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut all: Vec<PathBuf> = std::fs::read_dir(dir)
        .expect("the scripts")
        .map(|entry| entry.expect("a script").path())
        .filter(|path| !path.ends_with("common.sh"))
        .collect();
    all.sort();
    assert_eq!(all.len(), 14);
    all
}

fn run(one: &Path, other: &Path) {
    let mut wrong = Vec::new();
    for script in scripts() {
        let output = Command::new("timeout")
            .args(["--kill-after=5", LIMIT, "bash"])
            .arg(&script)
            .envs([("M", one), ("M2", other)])
            .stdin(Stdio::null())
            .output()
            .expect("bash");
        let said = [output.stdout, output.stderr].concat();
        println!("{}", String::from_utf8_lossy(&said));
        match output.status.code() {
            Some(0) => {}
            code => wrong.push(format!("{} ({code:?})", script.display())),
        }
    }
    assert!(wrong.is_empty(), "wrong here: {}", wrong.join(", "));
}

//! Metadata in several shards: names in one service, objects in the others. `SLABFS_SHARDS=3` runs the tests of other modules
//! over such clusters, too.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use slabfs_mdserver::RemoteMd;
use slabfs_mdserver::api::{Create, Kind, ROOT, op};
use slabfs_mdserver::client::Md;
use slabfs_objstore::Addr;
use slabfs_tests::{Cluster, needs_mount, poll, slabfs};

/// The shard that has an object.
fn shard(path: &Path) -> u64 {
    fs::metadata(path).expect("its attributes").ino() >> 44
}

fn names(dir: &Path) -> BTreeSet<String> {
    let listed = fs::read_dir(dir).expect("a directory");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    listed
        .map(|entry| name(entry).into_string().expect("text"))
        .collect()
}

/// Files are spread, and each mount sees them as of one filesystem.
#[test]
fn objects_are_spread_and_names_are_not() {
    needs_mount!();
    let mut cluster = Cluster::in_shards(3, 2, 2);
    fs::create_dir(cluster.at(0, "d")).expect("a directory");
    assert_eq!(shard(&cluster.at(0, "d")), 0);
    for at in 0..20 {
        fs::write(cluster.at(0, format!("d/f{at}")), format!("{at}")).expect("a file");
    }
    let mut of = [0; 3];
    for at in 0..20 {
        let path = cluster.at(1, format!("d/f{at}"));
        let content = fs::read_to_string(&path).expect("its content");
        assert_eq!(content, format!("{at}"));
        of[shard(&path) as usize] += 1;
    }
    // The directory has a number, too.
    assert!(of[0] == 0 && of[1] >= 9 && of[2] >= 9, "{of:?}");
    // Arrays, tags and searches of all shards.
    for step in 0..6 {
        let path = cluster.at(0, format!("d/a{step}"));
        let name = path.display().to_string();
        slabfs(["create", &name, "--dims", "4,4", "--dtype", "f4"]).ok();
        slabfs(["tag", &name, &format!("step={step}")]).ok();
    }
    let mnt = cluster.mnt(1).display().to_string();
    let found = |query: &str| {
        let hits = slabfs(["find", query, "--in", &mnt]).ok();
        String::from_utf8_lossy(&hits.stdout).lines().count()
    };
    assert_eq!(found("step in 1..3"), 3);
    assert_eq!(found("kind = container"), 2);
    assert_eq!(found("rank = 2 or kind = container"), 8);
    let within = cluster.at(1, "d").display().to_string();
    let sorted = slabfs(["find", "has step", "--sort=-step", "--in", &within]).ok();
    let paths = String::from_utf8_lossy(&sorted.stdout).into_owned();
    let last: Vec<&str> = paths.lines().map(|path| &path[path.len() - 2..]).collect();
    assert_eq!(last, ["a5", "a4", "a3", "a2", "a1", "a0"]);
    assert_eq!(found("name = a1"), 1);
    assert_eq!(found("name = a* and step > 2"), 3);
    assert_eq!(found("not name = a*"), 20);
    assert_eq!(found("path = /d/f1* or step = 0"), 12);
    let link = cluster.at(1, ".slabfs/find/name = a1/d%2Fa1");
    assert!(fs::symlink_metadata(&link).is_ok(), "{}", link.display());
    // Names and their number.
    let (a, b) = (cluster.at(0, "d/f0"), cluster.at(0, "second"));
    fs::hard_link(&a, &b).expect("a link");
    let links = |name: &str| {
        let attributes = fs::metadata(cluster.at(1, name));
        attributes.expect("its attributes").nlink()
    };
    assert_eq!(links("second"), 2);
    fs::remove_file(&a).expect("removed");
    assert_eq!(links("second"), 1);
    fs::rename(cluster.at(1, "d/f1"), cluster.at(1, "second")).expect("renamed");
    assert_eq!(fs::read_to_string(&b).expect("its content"), "1");
    fs::remove_dir_all(cluster.at(0, "d")).expect("removed");
    assert_eq!(
        names(&cluster.mnt(1)),
        BTreeSet::from(["second".to_owned()])
    );
    cluster.stop_and_fsck().ok();
}

/// All shards die, one after the other; programs go on, and what was synced is there.
#[test]
fn shards_die() {
    needs_mount!();
    let mut cluster = Cluster::in_shards(3, 1, 2);
    let file = |at: usize| format!("f{at}");
    for at in 0..4 {
        fs::write(cluster.at(0, file(at)), [at as u8; 100_000]).expect("a file");
    }
    for dead in 0..3 {
        cluster.kill_md_at(dead);
        cluster.start_md_at(dead);
        for at in 0..4 {
            let content = fs::read(cluster.at(1, file(at))).expect("its content");
            assert_eq!(content, [at as u8; 100_000], "after shard {dead}");
            let next = cluster.at(0, format!("n{dead}-{at}"));
            fs::write(&next, [9; 1000]).expect("a file");
        }
    }
    assert_eq!(names(&cluster.mnt(1)).len(), 16);
    cluster.stop_and_fsck().ok();
}

/// What a client that died had done at the shard of names, and not at that of the objects, is finished by a mount.
#[test]
fn what_a_dead_client_left_is_finished() {
    needs_mount!();
    let mut cluster = Cluster::in_shards(2, 1, 1);
    fs::write(cluster.at(0, "old"), "old").expect("a file");
    let mnt = cluster.mnt(0).display().to_string();
    let chunks = || {
        let servers = slabfs(["servers", "--json", &mnt]).ok();
        let servers: serde_json::Value =
            serde_json::from_slice(&servers.stdout).expect("a list of servers");
        servers[0]["chunks"].as_u64()
    };
    poll::until_true("a chunk", || chunks() == Some(1));
    let addr: Addr = cluster.md_addr().parse().expect("an address");
    let service = Arc::new(RemoteMd::connect(addr, None, Duration::from_secs(10)));
    let (client, _) = Md::attach(service, "test", 1, false).expect("a session");
    let create = |name: &[u8]| Create {
        parent: ROOT,
        name: name.to_vec(),
        kind: Kind::Object,
        mode: 0o640,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: None,
        exclusive: true,
        open: false,
    };
    client.call(create(b"new")).expect("a name");
    client.call(create(b"seen")).expect("a name");
    let unlink = op::Unlink {
        parent: ROOT,
        name: b"old".to_vec(),
    };
    client.call(unlink).expect("removed");
    // Who looks at a name finds its object.
    let seen = fs::metadata(cluster.at(0, "seen")).expect("its attributes");
    assert_eq!(
        (seen.mode() & 0o777, seen.len(), seen.nlink()),
        (0o640, 0, 1)
    );
    poll::until_true("the chunk to go", || chunks() == Some(0));
    poll::until_true("nothing to be left", || {
        let left = client.call(op::Unfinished { older_ms: 0 });
        left.expect("a list").is_empty()
    });
    fs::write(cluster.at(0, "new"), "new").expect("its content");
    client.call(op::Detach { clean: true }).expect("the end");
    cluster.stop_and_fsck().ok();
}

/// Over etcd each shard has a leader and a standby, and moves when its leader dies. A reply that has come is not lost, without any
/// `fsync`.
#[test]
fn each_shard_moves_when_its_leader_dies() {
    needs_mount!();
    const EACH: usize = 2;
    let mut cluster = Cluster::in_shards_over_etcd(2, EACH, 1);
    cluster.md_flags(&["--leader-lease", "2s"]);
    cluster.start_all(2);
    for (round, shard) in [1, 0].into_iter().enumerate() {
        let before = cluster.at(0, format!("before{round}"));
        fs::write(&before, "before").expect("a file");
        fs::create_dir(cluster.at(0, format!("d{round}"))).expect("a directory");
        let leader = cluster.leader_of_shard(shard, EACH);
        cluster.kill_md_at(leader);
        // Programs wait, and go on with the standby.
        let after = cluster.at(0, format!("d{round}/after"));
        fs::write(&after, "after").expect("a file");
        assert_ne!(cluster.leader_of_shard(shard, EACH), leader);
        let there = |name: String| fs::read_to_string(cluster.at(1, name)).expect("its content");
        assert_eq!(there(format!("before{round}")), "before");
        assert_eq!(there(format!("d{round}/after")), "after");
        cluster.start_md_at(leader);
    }
}

/// Wrong addresses are refused, with a message that says which.
#[test]
fn addresses_in_a_wrong_order_are_refused() {
    needs_mount!();
    let cluster = Cluster::in_shards(3, 1, 0);
    let addr = |at: usize| format!("unix:{}", cluster.area().at(format!("md{at}.s")).display());
    let mnt = cluster.area().mkdir("mnt").display().to_string();
    let refused = |shards: &[usize], what: &str| {
        let mut args = vec!["mount".to_owned(), mnt.clone()];
        for shard in shards {
            args.extend(["--md".to_owned(), addr(*shard)]);
        }
        let outcome = slabfs(args);
        assert_ne!(outcome.status, 0, "{outcome:?}");
        assert!(outcome.stderr.contains(what), "{outcome:?}");
    };
    refused(&[0], "in 3 shards");
    refused(&[0, 2, 1], "shard 2 of 3");
    refused(&[0, 1], "shard 0 of 3");
    let data = cluster.area().at("fresh").display().to_string();
    let listen = format!("unix:{}", cluster.area().at("fresh.s").display());
    let md = addr(1);
    let outcome = slabfs([
        "objserver",
        "--listen",
        &listen,
        "--data",
        &data,
        "--md",
        &md,
    ]);
    assert_ne!(outcome.status, 0, "{outcome:?}");
    let advice = "give --md once for each shard";
    assert!(outcome.stderr.contains(advice), "{outcome:?}");
}

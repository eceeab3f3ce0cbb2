//! Metadata services over a journal in etcd: one conformance suite, and what happens when services and members of etcd
//! die, are stopped, or are full.

mod rounds;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use slabfs_etcd::{Checkpoints, CheckpointsAddr, Etcd as EtcdClient, Leader, Standby};
use slabfs_mdserver::kv::{Batch, KvOptions, MetaKv, conformance};
use slabfs_s3::Bucket;
use slabfs_tests::etcd::Etcd;
use slabfs_tests::skew::clock;
use slabfs_tests::weed::{CREDENTIALS, Weed};
use slabfs_tests::{Area, Cluster, Machine, file, needs_mount, needs_root, poll, slabfs};

/// How long a leader's lease is where leaders are lost.
const LEASE: &str = "5s";
/// How long it is where they are not, whatever the load of the machine.
const LONG_LEASE: Duration = Duration::from_secs(30);

/// A store of its own over a prefix, elected at once.
struct Stores {
    area: Area,
    etcd: Etcd,
    /// The bucket of the checkpoints; without it they are in directories.
    weed: Option<Arc<Weed>>,
    made: AtomicU64,
}

impl Stores {
    fn new(flags: &[&str]) -> Stores {
        let area = Area::new();
        Stores {
            etcd: Etcd::start(&area, 1, flags),
            weed: None,
            area,
            made: AtomicU64::new(0),
        }
    }

    fn next_prefix(&self) -> String {
        format!("store{}", self.made.fetch_add(1, Ordering::Relaxed))
    }

    fn dir(&self, name: &str) -> PathBuf {
        let dir = self.area.at(name);
        fs::create_dir_all(&dir).expect("a directory");
        dir
    }

    /// Follows until elected; `dir` has the copy.
    fn elected(&self, prefix: &str, dir: &str, options: &KvOptions) -> slabfs_etcd::EtcdKv {
        let addr = self.etcd.url(prefix).parse().expect("an address");
        let client = Arc::new(EtcdClient::new(&addr).expect("a client"));
        let checkpoints = match &self.weed {
            None => {
                let place = self.dir(&format!("{prefix}-checkpoints"));
                Checkpoints::open(&CheckpointsAddr::Directory(place)).expect("the directory")
            }
            Some(weed) => {
                let addr = weed.url(prefix).parse().expect("an address");
                let bucket = Bucket::open_with(&addr, &CREDENTIALS).expect("the bucket");
                Checkpoints::Bucket(Arc::new(bucket))
            }
        };
        let standby = Standby::open(&client, &self.dir(dir), checkpoints, options);
        let who = Leader {
            addr: dir.to_owned(),
            host: String::new(),
            pid: 0,
        };
        let wait = |_: Option<&Leader>, at_most| {
            thread::sleep(at_most);
            true
        };
        let elected = standby
            .expect("a copy")
            .until_elected(&who, LONG_LEASE, wait);
        elected.expect("elected").kv
    }
}

/// The store over a journal in etcd is a store as the local one is.
#[test]
fn a_journal_in_etcd_passes_the_suite_of_stores() {
    let stores = Stores::new(&[]);
    conformance::run(&|| {
        let prefix = stores.next_prefix();
        Arc::new(stores.elected(&prefix, &prefix, &KvOptions::default()))
    });
}

fn put(kv: &dyn MetaKv, key: String, value: Vec<u8>) {
    let mut batch = Batch::new();
    batch.put(key.into_bytes(), value);
    kv.commit(batch).expect("a commit");
}

/// What was synced is in the next leader's store: also records of several blocks, and behind checkpoints. The journal in etcd
/// does not grow without bound.
#[test]
fn a_new_leader_has_what_was_synced() {
    let stores = Stores::new(&[]);
    leaders_follow_each_other(&stores);
    let found = fs::read_dir(stores.area.at("store0-checkpoints")).expect("a directory");
    let names = found.map(|entry| entry.expect("an entry").file_name());
    let checkpoints = names.filter(|name| name.to_string_lossy().starts_with("checkpoint-"));
    assert!(checkpoints.count() <= 2);
}

/// The same with the checkpoints in a bucket.
#[test]
fn checkpoints_are_in_a_bucket() {
    let mut stores = Stores::new(&[]);
    let weed = stores.weed.insert(Weed::shared());
    let addr = weed.url("store0").parse().expect("an address");
    leaders_follow_each_other(&stores);
    let bucket = Bucket::open_with(&addr, &CREDENTIALS).expect("the bucket");
    let parts = bucket.list("checkpoints").expect("a list");
    let names: BTreeSet<_> = parts
        .iter()
        .filter_map(|part| part.split('/').next())
        .filter(|name| name.starts_with("checkpoint-"))
        .collect();
    assert!(names.len() <= 2 && parts.len() > names.len(), "{parts:?}");
}

fn leaders_follow_each_other(stores: &Stores) {
    let prefix = stores.next_prefix();
    let options = KvOptions {
        journal_limit: 1 << 20,
        ..KvOptions::default()
    };
    let mut wanted = Vec::new();
    // Copies: one that leads again and again, one that is rebuilt, and one that has missed much.
    for (round, dir) in ["a", "b", "a", "c", "b"].into_iter().enumerate() {
        let kv = stores.elected(&prefix, dir, &options);
        for (key, value) in &wanted {
            let found = kv.get(String::as_bytes(key)).expect("a value");
            assert!(found.as_ref() == Some(value), "{key} in round {round}");
        }
        for number in 0..40 {
            let key = format!("{round}-{number}");
            let len = if number == 20 { 3 << 20 } else { 40_000 };
            let value = vec![number as u8; len];
            put(&kv, key.clone(), value.clone());
            wanted.push((key, value));
        }
        kv.sync().expect("a sync");
        if round == 1 {
            // What it has not synced may be lost, and nothing else.
            continue;
        }
        kv.checkpoint().expect("a checkpoint");
        put(&kv, format!("last-{round}"), vec![1]);
        wanted.push((format!("last-{round}"), vec![1]));
        kv.close().expect("closed");
    }
    let blocks = stores.etcd.count(&format!("/{prefix}/log/"));
    assert!(blocks < 100, "{blocks} blocks are left");
}

/// A leader that has lost its lease while it was stopped can write nothing, and answers nothing.
#[test]
fn an_old_leader_is_refused() {
    let stores = Stores::new(&[]);
    let prefix = stores.next_prefix();
    let options = KvOptions::default();
    let old = stores.elected(&prefix, "old", &options);
    put(&old, "a".to_owned(), vec![1]);
    old.sync().expect("a sync");
    // Its lease ends, as when its process is stopped for long; another one follows.
    let (_, leases) = stores.etcd.ctl(&["lease", "list"]);
    let lease = leases.lines().last().expect("a lease").to_owned();
    assert!(stores.etcd.ctl(&["lease", "revoke", &lease]).0);
    let new = stores.elected(&prefix, "new", &options);
    put(&new, "b".to_owned(), vec![2]);
    new.sync().expect("a sync");
    let mut batch = Batch::new();
    batch.put("c", [3]);
    let written = old.commit(batch).and_then(|_| old.sync());
    assert!(written.is_err() && old.before_reply().is_err());
    assert!(old.wait_for_sync_failure().is_some());
    drop(old);
    assert_eq!(new.get(b"c").expect("a value"), None);
    new.close().expect("closed");
    // Its copy has a commit that the log has not: it is rebuilt.
    let again = stores.elected(&prefix, "old", &options);
    assert_eq!(again.get(b"c").expect("a value"), None);
    assert_eq!(again.get(b"b").expect("a value"), Some(vec![2]));
}

/// A full etcd stops commits, and they go on by themselves when it has space again.
#[test]
fn a_full_etcd_is_waited_for() {
    const COMMITS: u64 = 20;
    let stores = Stores::new(&["--quota-backend-bytes", "16777216"]);
    let etcd = &stores.etcd;
    let prefix = stores.next_prefix();
    let kv = Arc::new(stores.elected(&prefix, "a", &KvOptions::default()));
    let other = "x".repeat(100_000);
    let mut others = 0..;
    while !etcd.ctl(&["alarm", "list"]).1.contains("NOSPACE") {
        let number = others.next().unwrap_or(0);
        etcd.ctl(&["put", &format!("/other/{number}"), &other]);
    }
    let done = Arc::new(AtomicU64::new(0));
    let writing = {
        let (kv, done) = (kv.clone(), done.clone());
        thread::spawn(move || {
            for number in 0..COMMITS {
                put(&*kv, format!("k{number}"), vec![number as u8; 1000]);
                kv.sync().expect("a sync");
                done.store(number + 1, Ordering::SeqCst);
            }
        })
    };
    // It is refused.
    let done_any = || (done.load(Ordering::SeqCst) > 0).then_some(());
    assert_eq!(poll::until_or(Duration::from_secs(3), done_any), None);
    let engine: BTreeMap<_, _> = kv.engine().into_iter().collect();
    assert!(engine["alarms"].contains("Nospace"), "{engine:?}");
    assert_eq!(engine["members"], "1 of 1 answer");
    // What an administrator does.
    assert!(etcd.ctl(&["del", "--prefix", "/other/"]).0);
    let (_, status) = etcd.ctl(&["endpoint", "status", "--write-out", "json"]);
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    let revision = status[0]["Status"]["header"]["revision"].to_string();
    assert!(etcd.ctl(&["compact", &revision]).0);
    assert!(etcd.ctl(&["defrag"]).0);
    assert!(etcd.ctl(&["alarm", "disarm"]).0);
    writing.join().expect("all commits");
    kv.close().expect("closed");
    drop(kv);
    let next = stores.elected(&prefix, "b", &KvOptions::default());
    for number in 0..COMMITS {
        let value = next.get(format!("k{number}").as_bytes()).expect("a value");
        assert_eq!(value, Some(vec![number as u8; 1000]));
    }
}

/// A leader that is cut off from etcd and from everything else is replaced; when its link is back it follows, and what it was asked
/// meanwhile is not there.
#[test]
fn a_leader_that_is_cut_off_is_replaced() {
    needs_root!();
    let mut cluster = Cluster::over_etcd_networked(2, 1, 1, &[]);
    cluster.md_flags(&["--leader-lease", LEASE]);
    cluster.start_all(2);
    let (here, there) = (cluster.at(0, "file"), cluster.at(1, "file"));
    for round in 0..3u64 {
        let leader = cluster.leader();
        fs::write(&here, round.to_le_bytes()).expect("written");
        cluster.cut(Machine::Md(leader));
        // It waits until the other service leads.
        fs::write(&here, (round + 100).to_le_bytes()).expect("written");
        assert!(file::read(&there) == (round + 100).to_le_bytes());
        fs::rename(&there, cluster.at(1, "other")).expect("renamed");
        assert!(!here.exists());
        fs::rename(cluster.at(0, "other"), &here).expect("renamed");
        assert_ne!(cluster.leader(), leader);
        cluster.heal(Machine::Md(leader));
        poll::until_true("it follows again", || {
            cluster
                .md_at(leader)
                .log()
                .matches("following again")
                .count()
                > round as usize / 2
        });
        assert!(file::read(&there) == (round + 100).to_le_bytes());
    }
}

/// Metadata that was in a directory goes on in etcd, with the same data servers, by a dump; and back again.
#[test]
fn metadata_moves_to_etcd_and_back() {
    needs_mount!();
    let mut cluster = Cluster::start(1, 1);
    fs::create_dir(cluster.at(0, "d")).expect("a directory");
    for number in 0..100 {
        fs::write(cluster.at(0, format!("d/f{number}")), [number; 1000]).expect("a file");
    }
    file::sync_dir(&cluster.mnt(0)).expect("synced");
    let check = |cluster: &Cluster| {
        for number in 0..100 {
            let path = cluster.at(0, format!("d/f{number}"));
            assert!(file::read(&path) == [number; 1000], "{number}");
        }
    };
    let area = cluster.area().path().to_owned();
    let (dump, md) = (area.join("dump"), cluster.md_data());
    let dumped = |cluster: &Cluster| {
        let mnt = cluster.mnt(0);
        slabfs(
            ["meta", "dump", "--force"]
                .map(AsRef::as_ref)
                .into_iter()
                .chain([mnt.as_os_str(), dump.as_os_str()]),
        )
        .ok();
    };
    let stop = |cluster: &mut Cluster| {
        cluster.stop_mount(0);
        cluster.stop_server(0);
        cluster.stop_md();
    };
    dumped(&cluster);
    stop(&mut cluster);
    fs::rename(&md, area.join("md.before")).expect("renamed");
    let etcd = Etcd::start(cluster.area(), 1, &[]);
    let url = etcd.url("moved");
    let checkpoints = cluster.area().mkdir("moved-checkpoints");
    let etcd_flags = [
        "--meta",
        &url,
        "--checkpoints",
        &checkpoints.display().to_string(),
    ];
    let load = |more: &[&str]| {
        let (dump, md) = (dump.display().to_string(), md.display().to_string());
        let words = ["meta", "load", &dump, "--data", &md];
        slabfs(words.iter().chain(more))
    };
    load(&etcd_flags).ok();
    let in_use = load(&etcd_flags);
    in_use.fails(1, &["has metadata already"]);
    cluster.md_flags(&etcd_flags);
    cluster.start_md();
    cluster.start_server(0);
    cluster.start_mount(0);
    check(&cluster);
    fs::write(cluster.at(0, "later"), "later").expect("a file");
    file::sync_dir(&cluster.mnt(0)).expect("synced");
    dumped(&cluster);
    stop(&mut cluster);
    // Another service of the same metadata, on an empty directory.
    fs::rename(&md, area.join("md.first")).expect("renamed");
    cluster.start_md();
    cluster.start_server(0);
    cluster.start_mount(0);
    check(&cluster);
    assert_eq!(file::read(&cluster.at(0, "later")), b"later");
    stop(&mut cluster);
    fs::rename(&md, area.join("md.second")).expect("renamed");
    load(&[]).ok();
    cluster.drop_md_flags(4);
    cluster.start_md();
    cluster.start_server(0);
    cluster.start_mount(0);
    check(&cluster);
    assert_eq!(file::read(&cluster.at(0, "later")), b"later");
}

/// Clocks of the services and data servers differ by minutes: all goes on, also when another one leads. A data server whose clock is
/// too wrong for the object store ends with the store's answer.
#[test]
fn clocks_differ_by_minutes() {
    needs_mount!();
    let weed = Weed::shared();
    let mut cluster = Cluster::over_etcd(2, 1, 2, &[]);
    cluster.md_flags(&["--leader-lease", LEASE]);
    for (md, offset) in ["+7m", "-7m"].into_iter().enumerate() {
        for var in clock(offset) {
            cluster.md_var(md, var);
        }
    }
    for (server, offset) in ["-10m", "+3h"].into_iter().enumerate() {
        let flags = [
            "--store",
            &weed.url("clocks"),
            "--identity",
            ["a", "b"][server],
        ];
        cluster.server_flags(server, &flags);
        for var in clock(offset).into_iter().chain(CREDENTIALS) {
            cluster.server_var(server, var);
        }
    }
    (0..2).for_each(|md| cluster.start_md_at(md));
    cluster.start_server(0);
    (0..2).for_each(|_| cluster.add_mount());
    let write = |cluster: &Cluster, round: u8| {
        let path = cluster.at(0, format!("f{round}"));
        fs::write(&path, [round; 100_000]).expect("a file");
        fs::File::open(&path)
            .and_then(|file| file.sync_all())
            .expect("synced");
        assert!(file::read(&cluster.at(1, format!("f{round}"))) == [round; 100_000]);
    };
    write(&cluster, 0);
    for round in 1..3 {
        let leader = cluster.leader();
        cluster.kill_md_at(leader);
        write(&cluster, round);
        cluster.start_md_at(leader);
    }
    cluster.kill_server(0);
    cluster.start_server(0);
    write(&cluster, 3);
    cluster.launch_server(1);
    let refused = cluster.server_refused(1);
    assert!(refused.contains("RequestTimeTooSkewed"), "{refused}");
}

/// All services of a filesystem agree on the number of its shards.
#[test]
fn another_number_of_shards_is_refused() {
    needs_mount!();
    let mut cluster = Cluster::over_etcd(1, 1, 0, &[]);
    cluster.start_md();
    let area = cluster.area();
    let outcome = slabfs([
        "mdserver",
        "--listen",
        &format!("unix:{}", area.at("other.s").display()),
        "--data",
        &area.at("other").display().to_string(),
        "--meta",
        &cluster.etcd().url("test"),
        "--checkpoints",
        &area.mkdir("other-checkpoints").display().to_string(),
        "--shard",
        "0/2",
    ]);
    outcome.fails(1, &["has 1 shards and not 2", "--shard I/N"]);
}

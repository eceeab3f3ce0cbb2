//! The cost of the protocol between mounts, counted in messages: exactly, by the counters of real mounts
//! (docs/operations/tuning.md, "Coherence between mounts").

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use slabfs_tests::file::{self, named};
use slabfs_tests::tool::{create, program, stats};
use slabfs_tests::{Cluster, needs_mount};

/// Messages of one mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    asked: u64,
    granted: u64,
    recalled: u64,
    given: u64,
    flushes: u64,
    commits: u64,
    /// Chunks written on data servers.
    stored: u64,
}

impl Count {
    const NONE: Count = Count {
        asked: 0,
        granted: 0,
        recalled: 0,
        given: 0,
        flushes: 0,
        commits: 0,
        stored: 0,
    };
    /// One request, and the grant that answers it.
    const ONE_GRANT: Count = Count {
        asked: 1,
        granted: 1,
        ..Count::NONE
    };

    #[track_caller]
    fn of(mount: &Path) -> Count {
        let stats = stats(mount);
        let number = |name: &str| {
            let number = stats.pointer(name).and_then(serde_json::Value::as_u64);
            number.unwrap_or_else(|| panic!("no counter {name} in {stats}"))
        };
        Count {
            asked: number("/rights_asked"),
            granted: number("/rights_granted"),
            recalled: number("/rights_recalled"),
            given: number("/rights_given"),
            flushes: number("/flushes"),
            commits: number("/commits"),
            stored: number("/write/server_ops"),
        }
    }

    fn since(self, before: Count) -> Count {
        Count {
            asked: self.asked - before.asked,
            granted: self.granted - before.granted,
            recalled: self.recalled - before.recalled,
            given: self.given - before.given,
            flushes: self.flushes - before.flushes,
            commits: self.commits - before.commits,
            stored: self.stored - before.stored,
        }
    }
}

/// The messages of each mount during an operation.
struct Counted<'a> {
    cluster: &'a Cluster,
    before: Vec<Count>,
}

impl<'a> Counted<'a> {
    fn from_now(cluster: &'a Cluster, mounts: usize) -> Counted<'a> {
        let before = (0..mounts).map(|one| Count::of(&cluster.mnt(one)));
        Counted {
            cluster,
            before: before.collect(),
        }
    }

    /// Since the last call.
    fn take(&mut self) -> Vec<Count> {
        let sent = self.before.iter_mut().enumerate().map(|(mount, before)| {
            let now = Count::of(&self.cluster.mnt(mount));
            now.since(std::mem::replace(before, now))
        });
        sent.collect()
    }
}

/// An object of 64 rows of 64 bytes, all written and stored through `mount`.
fn filled(cluster: &Cluster, mount: usize, name: &str, layout: &str) {
    let path = cluster.at(mount, name);
    create(&path, "64,64", "u1", &["--layout", layout]);
    file::write(&path, [7; 4096]);
}

fn read(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).expect("read");
    bytes
}

const LAYOUTS: [&str; 3] = ["aligned", "grid:8,8", "canonical"];

/// Line one, first half: an object that only one mount uses costs one grant, and no more.
#[test]
fn an_object_of_one_mount_costs_one_grant() {
    needs_mount!();
    let cluster = Cluster::start(1, 3);
    for layout in LAYOUTS {
        let name = &layout[..4];
        create(&cluster.at(1, name), "64,64", "u1", &["--layout", layout]);
        let file = file::open(&cluster.at(1, name));
        let mut counted = Counted::from_now(&cluster, 3);
        for step in 0..32u64 {
            // At scattered places, so that each would need a request if the mount did not have the right to
            // all.
            let at = step * 37 % 63 * 64;
            file.write_all_at(&[step as u8; 50], at).expect("written");
            assert_eq!(read(&file, at, 50), [step as u8; 50]);
        }
        let wanted = [Count::NONE, Count::ONE_GRANT, Count::NONE];
        let mut sent = counted.take();
        // A write in place goes to its server at once, or with the flush.
        sent[1].stored = 0;
        assert_eq!(sent, wanted, "{layout}");
        file.sync_all().expect("synced");
        file.write_all_at(&[1; 50], 0).expect("written");
        file.sync_all().expect("synced");
        let sent = counted.take();
        assert_eq!((sent[1].asked, sent[1].recalled), (0, 0), "{layout}");
        assert_eq!((sent[1].flushes, sent[1].commits), (2, 2), "{layout}");
        assert_eq!((sent[0], sent[2]), (Count::NONE, Count::NONE));
    }
}

/// Line one, second half: an object that all mounts only read costs each one grant, and no more.
#[test]
fn an_object_that_all_read_costs_each_one_grant() {
    needs_mount!();
    let cluster = Cluster::start(1, 5);
    for layout in LAYOUTS {
        let name = &layout[..4];
        // Through a mount that is not counted: the kernel sends a close at any time, and an object that is not
        // closed is read without a request by its own mount, and recalled for the others.
        filled(&cluster, 4, name, layout);
        let files: Vec<File> = (0..4)
            .map(|one| File::open(cluster.at(one, name)).expect("opened"))
            .collect();
        let mut counted = Counted::from_now(&cluster, 4);
        let all_read = |steps: std::ops::Range<u64>| {
            for (step, (who, file)) in
                steps.flat_map(|step| files.iter().enumerate().map(move |it| (step, it)))
            {
                let at = (step + who as u64 * 5) * 37 % 63 * 64;
                assert_eq!(read(file, at, 64), [7; 64]);
            }
        };
        all_read(0..1);
        assert_eq!(counted.take(), [Count::ONE_GRANT; 4], "{layout}");
        all_read(1..33);
        assert_eq!(counted.take(), [Count::NONE; 4], "{layout}");
    }
}

/// Line two: n mounts that write a box each, at the same time, cost each one grant and one commit.
fn disjoint_boxes(layout: &str, mounts: usize) {
    let cluster = Cluster::start(2, mounts);
    create(&cluster.at(0, "a"), "64,64", "u1", &["--layout", layout]);
    let rows = 64 / mounts;
    let boxes: Vec<File> = (0..mounts)
        .map(|one| {
            let (from, to) = (one * rows, (one + 1) * rows);
            let name = named(&cluster.at(one, "a"), &format!("@[{from}:{to},8:56]"));
            OpenOptions::new().write(true).open(name).expect("opened")
        })
        .collect();
    let mut counted = Counted::from_now(&cluster, mounts);
    std::thread::scope(|scope| {
        for (one, file) in boxes.into_iter().enumerate() {
            scope.spawn(move || {
                // In one write, as a program does that has its box in memory.
                file.write_all_at(&vec![one as u8 + 1; rows * 48], 0)
                    .expect("written");
                file::close(file).expect("stored");
            });
        }
    });
    for (who, sent) in counted.take().into_iter().enumerate() {
        assert_eq!(
            (sent.asked, sent.granted, sent.flushes, sent.commits),
            (1, 1, 1, 1),
            "{layout}, mount {who} of {mounts}: {sent:?}"
        );
    }
    let all = file::read(&cluster.at(0, "a"));
    for (at, byte) in all.iter().enumerate() {
        let (row, column) = (at / 64, at % 64);
        let wanted = match (8..56).contains(&column) && row < rows * mounts {
            true => (row / rows) as u8 + 1,
            false => 0,
        };
        assert_eq!(*byte, wanted, "{layout}, row {row}, column {column}");
    }
}

#[test]
fn disjoint_boxes_of_two_mounts_cost_each_one_grant_and_one_commit() {
    needs_mount!();
    LAYOUTS
        .into_iter()
        .for_each(|layout| disjoint_boxes(layout, 2));
}

#[test]
fn disjoint_boxes_of_four_mounts_cost_each_one_grant_and_one_commit() {
    needs_mount!();
    LAYOUTS
        .into_iter()
        .for_each(|layout| disjoint_boxes(layout, 4));
}

/// Line three: `ls -l` of objects that are being written flushes nothing, and recalls no right.
#[test]
fn listing_objects_that_are_written_flushes_nothing() {
    needs_mount!();
    let cluster = Cluster::start(1, 3);
    let dir = cluster.at(0, "d");
    std::fs::create_dir(&dir).expect("made");
    create(&dir.join("aligned"), "64,64", "u1", &[]);
    let names = ["aligned", "bytes", "log"];
    let files: Vec<File> = names
        .iter()
        .map(|name| {
            let options = OpenOptions::new().write(true).create(true).clone();
            options.open(dir.join(name)).expect("opened")
        })
        .collect();
    for (file, len) in files.iter().zip([100, 200, 300]) {
        file.write_all_at(&vec![1; len], 0).expect("written");
    }
    let mut counted = Counted::from_now(&cluster, 3);
    for _ in 0..5 {
        for lister in 1..3 {
            // By another process: a child of this one would close these files, which flushes.
            let listed = program("ls", ["-l".as_ref(), cluster.at(lister, "d").as_os_str()]);
            let listed = String::from_utf8(listed.ok().stdout).expect("text");
            let size = |name: &str| {
                let line = listed.lines().find(|line| line.ends_with(name));
                let mut words = line.expect("listed").split_whitespace();
                words.nth(4).expect("a size").parse().expect("a number")
            };
            let sizes: Vec<u64> = names.iter().map(|name| size(name)).collect();
            assert_eq!(sizes, [4096, 200, 300], "mount {lister}");
        }
    }
    assert_eq!(counted.take(), [Count::NONE; 3]);
    let dirty = stats(&cluster.mnt(0))["dirty_bytes"].as_u64();
    assert!(dirty >= Some(600), "all of it is dirty: {dirty:?}");
}

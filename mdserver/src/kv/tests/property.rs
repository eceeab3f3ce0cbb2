//! Random histories with crashes, against a model of the acknowledged commits.

use super::super::conformance::{apply, batches, mark_new};
use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Clone)]
enum Step {
    Commit(Batch),
    Sync,
    Checkpoint,
    Close,
    Kill,
    /// Kill, and cut so many bytes from the end of the journal.
    Cut(u16),
    /// Kill, and do something to a file of sled.
    Sled(u8, u16),
    /// Kill and power loss: unsynced commits from here on may be lost.
    Power(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        40 => batches().prop_map(Step::Commit),
        4 => Just(Step::Sync),
        3 => Just(Step::Checkpoint),
        2 => Just(Step::Close),
        2 => Just(Step::Kill),
        2 => any::<u16>().prop_map(Step::Cut),
        2 => (any::<u8>(), any::<u16>()).prop_map(|(what, at)| Step::Sled(what, at)),
        2 => any::<u16>().prop_map(Step::Power),
    ];
    prop::collection::vec(step, 1..80)
}

/// A store under test with every state it went through: `states[n]` is the map after commit `n`.
struct Subject {
    dir: TempDir,
    kv: Option<LocalKv>,
    states: Vec<Model>,
    synced: Lsn,
}

impl Subject {
    fn new() -> Self {
        let dir = TempDir::new().unwrap();
        let kv = Some(LocalKv::open(dir.path(), Self::options()).unwrap().0);
        Self {
            dir,
            kv,
            states: vec![Model::new()],
            synced: Lsn(0),
        }
    }

    fn options() -> KvOptions {
        KvOptions {
            journal_limit: 4 << 10,
            remembered: Some(b'a'),
            ..quiet()
        }
    }

    /// Looks up single keys, which may be cached: all keys of some length that batches ever contain.
    fn look(&self) {
        let model = self.states.last().unwrap();
        let letters = || b'a'..b'e';
        let keys = letters().flat_map(|a| letters().map(move |b| [a, b]));
        for key in letters().map(|a| vec![a]).chain(keys.map(Vec::from)) {
            assert_eq!(
                self.kv().get(&key).unwrap().as_ref(),
                model.get(&key),
                "{key:?}"
            );
        }
    }

    fn kv(&self) -> &LocalKv {
        self.kv.as_ref().unwrap()
    }

    fn kill(&mut self) {
        let copy = self.kv().engine().stopped(|| killed(self.dir.path()));
        self.kv = None;
        self.dir = copy;
    }

    /// Opens again; at least the first `least` commits must be there.
    fn reopen(&mut self, least: usize, ground: Ground) {
        let (kv, recovery) = LocalKv::open_on(self.dir.path(), Self::options(), ground).unwrap();
        let last = recovery.last.0 as usize;
        assert!(
            last >= least && last < self.states.len(),
            "{last} of {}: {recovery}",
            self.states.len() - 1
        );
        self.states.truncate(last + 1);
        self.synced = recovery.last;
        assert_eq!(all(&kv), self.states[last], "{recovery}");
        self.kv = Some(kv);
    }

    fn step(&mut self, step: Step) {
        let every = self.states.len() - 1;
        match step {
            Step::Commit(batch) => {
                let mut model = self.states[every].clone();
                let batch = mark_new(batch, &model);
                apply(&mut model, &batch);
                assert_eq!(self.kv().commit(batch).unwrap().0 as usize, every + 1);
                self.states.push(model);
                self.look();
            }
            Step::Sync => self.synced = self.kv().sync().unwrap(),
            Step::Checkpoint => {
                self.kv().checkpoint().unwrap();
                self.look();
                self.synced = Lsn(every as u64);
            }
            Step::Close => {
                self.kv().close().unwrap();
                self.kv = None;
                self.reopen(every, Ground::real());
            }
            Step::Kill => {
                self.kill();
                self.reopen(every, Ground::real());
            }
            Step::Cut(bytes) => {
                self.kill();
                let least = self.cut(usize::from(bytes));
                self.reopen(least, Ground::real());
            }
            Step::Sled(what, at) => {
                self.kill();
                spoil_sled(self.dir.path(), what, usize::from(at));
                self.reopen(every, Ground::real());
            }
            Step::Power(at) => {
                let synced = self.kv().synced().0 as usize;
                self.kill();
                self.tear(synced, usize::from(at));
                self.reopen(synced, after_reboot());
                // The files must look again as if written during this boot.
                self.kv().close().unwrap();
                self.kv = None;
                self.reopen(0, Ground::real());
            }
        }
    }

    /// Truncates the last file within its last record; returns how many commits must be left.
    fn cut(&self, bytes: usize) -> usize {
        let every = self.states.len() - 1;
        let file = journals(self.dir.path()).pop().unwrap();
        let Some(&(start, lsn)) = records(&file).last() else {
            return every;
        };
        let content = fs::read(&file).unwrap();
        let keep = content.len() - bytes % (content.len() - start + 1);
        fs::write(&file, &content[..keep]).unwrap();
        lsn.0 as usize - 1
    }

    /// Damages a record that was not synced.
    fn tear(&self, synced: usize, at: usize) {
        let file = journals(self.dir.path()).pop().unwrap();
        let mut unsynced = records(&file);
        unsynced.retain(|&(_, lsn)| lsn.0 as usize > synced);
        if unsynced.is_empty() {
            return;
        }
        let (start, _) = unsynced[at % unsynced.len()];
        let mut content = fs::read(&file).unwrap();
        let end = (start + 64).min(content.len());
        content[start..end].fill(0);
        fs::write(&file, content).unwrap();
    }
}

fn spoil_sled(dir: &Path, what: u8, at: usize) {
    let db = dir.join("sled/db");
    if !dir.join("sled").exists() {
        return;
    }
    if what.is_multiple_of(4) || !db.exists() {
        fs::remove_dir_all(dir.join("sled")).unwrap();
        return;
    }
    let mut content = fs::read(&db).unwrap();
    if content.is_empty() {
        return;
    }
    let used = content.iter().rposition(|&byte| byte != 0).unwrap_or(0) + 1;
    match what % 4 {
        1 => content.truncate(at * 31 % content.len()),
        2 => content[at * 31 % used] ^= 1 << (at % 8),
        _ => {
            let start = at * 31 % used;
            let end = (start + 4096).min(content.len());
            content[start..end].fill(0);
        }
    }
    fs::write(&db, content).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn acknowledged_commits_survive_every_crash(steps in steps()) {
        let mut subject = Subject::new();
        for step in steps {
            subject.step(step);
        }
        let every = subject.states.len() - 1;
        prop_assert_eq!(&all(subject.kv()), &subject.states[every]);
    }
}

/// A busy store is killed at random moments while it commits, rotates files and writes checkpoints. In addition sled's
/// files are inconsistent, because they are copied while they change. Every copy contains all commits acknowledged when
/// the copy began, and nothing that was not committed.
#[test]
fn copies_of_a_busy_store_open() {
    let dir = TempDir::new().unwrap();
    let options = KvOptions {
        journal_limit: 16 << 10,
        sync_interval: Duration::from_millis(5),
        ..quiet()
    };
    let (kv, _) = LocalKv::open(dir.path(), options.clone()).unwrap();
    let acknowledged = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut i = 0u64;
            while done.load(Ordering::Acquire) == 0 {
                i += 1;
                let mut batch = Batch::new();
                batch
                    .put((i % 97).to_be_bytes(), i.to_le_bytes())
                    .put("last", i.to_le_bytes());
                kv.commit(batch).unwrap();
                acknowledged.store(i, Ordering::Release);
            }
        });
        for _ in 0..40 {
            let before = acknowledged.load(Ordering::Acquire);
            let copy = TempDir::new().unwrap();
            copy_tree(&dir.path().join("sled"), &copy.path().join("sled"));
            kv.engine().stopped(|| copy_truth(dir.path(), copy.path()));
            let after = acknowledged.load(Ordering::Acquire) + 1;
            let (kv, recovery) = LocalKv::open(copy.path(), options.clone()).unwrap();
            let last = recovery.last.0;
            assert!(
                last >= before && last <= after,
                "{before} {last} {after}: {recovery}"
            );
            let mut model = Model::new();
            for i in 1..=last {
                model.insert((i % 97).to_be_bytes().to_vec(), i.to_le_bytes().to_vec());
            }
            if last > 0 {
                model.insert(b"last".to_vec(), last.to_le_bytes().to_vec());
            }
            assert_eq!(all(&kv), model, "{recovery}");
        }
        done.store(1, Ordering::Release);
    });
}

/// Rows are moved into the index, and into the cache, while they are changed: a reader sees every commit that has
/// returned, whichever of the two has the row.
#[test]
fn rows_moved_into_the_index_are_never_outdated() {
    let dir = TempDir::new().unwrap();
    let options = KvOptions {
        journal_limit: 16 << 10,
        sync_interval: Duration::from_millis(1),
        remembered: Some(b'k'),
        ..quiet()
    };
    let (kv, _) = LocalKv::open(dir.path(), options).unwrap();
    std::thread::scope(|scope| {
        for own in 0..2u32 {
            let kv = &kv;
            scope.spawn(move || {
                for i in 0..20_000u32 {
                    let key = format!("k{own}{}", i.wrapping_mul(2_654_435_761) >> 29);
                    let mut batch = Batch::new();
                    let value = (i % 5 != 3).then(|| i.to_le_bytes().to_vec());
                    match &value {
                        Some(value) => batch.put(&key[..], value.clone()),
                        None => batch.delete(&key[..]),
                    };
                    kv.commit(batch).unwrap();
                    assert_eq!(kv.get(key.as_bytes()).unwrap(), value, "{i}");
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..50 {
                kv.checkpoint().unwrap();
            }
        });
    });
    // The tables are empty now: the cache and the index answer.
    kv.checkpoint().unwrap();
    for (key, value) in all(&kv) {
        assert_eq!(kv.get(&key).unwrap(), Some(value));
    }
}

/// Copies checkpoints and journal.
fn copy_truth(from: &Path, to: &Path) {
    for prefix in ["checkpoint", "journal"] {
        for number in numbered(from, prefix).unwrap() {
            let name = format!("{prefix}-{number:020}");
            if let Err(error) = fs::copy(from.join(&name), to.join(&name)) {
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            }
        }
    }
}

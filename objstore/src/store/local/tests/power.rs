//! Tests of power failures: synced data survives, whatever else reached the disk.
//!
//! A witness records the contents of each file, and the entries of each directory, at their last sync. At the power
//! failure an image is made: every page of every file, and every entry of every directory, is chosen at random from the
//! last synced state and the present state. A store is opened on the image and compared with the guarantees. (The
//! method of ALICE, Pillai et al., OSDI 2014, with pages of 4 KiB as atoms.)

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::super::shared::Witness;
use super::super::*;
use crate::store::conformance::Random;
use crate::store::conformance::random::{Model, World, step};

/// Identifies a file regardless of its name: inode and birth time, since inode numbers are reused.
type FileId = (u64, u128);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Dir,
    File(FileId),
}

/// The contents of a file, and which of its pages are allocated.
#[derive(Default)]
struct Content {
    bytes: Vec<u8>,
    pages: Vec<bool>,
}

impl Content {
    fn of(path: &Path) -> Self {
        use nix::unistd::{Whence, lseek};
        let file = File::open(path).unwrap();
        let bytes = fs::read(path).unwrap();
        let mut pages = vec![false; bytes.len().div_ceil(4096)];
        let mut at = 0;
        while let Ok(data) = lseek(&file, at, Whence::SeekData) {
            let hole = lseek(&file, data, Whence::SeekHole).unwrap();
            pages[data as usize / 4096..(hole as usize).div_ceil(4096)].fill(true);
            at = hole;
        }
        Self { bytes, pages }
    }
}

/// The state that is certain to be on disk.
#[derive(Default)]
struct Disk {
    files: HashMap<FileId, Content>,
    dirs: HashMap<PathBuf, BTreeMap<OsString, Entry>>,
}

fn entry_of(path: &Path) -> Option<Entry> {
    let meta = fs::metadata(path).ok()?;
    if meta.is_dir() {
        return Some(Entry::Dir);
    }
    let born = meta
        .created()
        .unwrap()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    Some(Entry::File((meta.ino(), born)))
}

fn entries_of(dir: &Path) -> BTreeMap<OsString, Entry> {
    let Ok(list) = fs::read_dir(dir) else {
        return BTreeMap::new();
    };
    list.filter_map(|e| {
        let e = e.unwrap();
        Some((e.file_name(), entry_of(&e.path())?))
    })
    .collect()
}

impl Disk {
    fn note(&mut self, path: &Path) {
        match entry_of(path) {
            Some(Entry::Dir) => drop(self.dirs.insert(path.to_owned(), entries_of(path))),
            Some(Entry::File(id)) => drop(self.files.insert(id, Content::of(path))),
            None => {}
        }
    }

    fn note_tree(&mut self, dir: &Path) {
        for name in entries_of(dir).keys() {
            let path = dir.join(name);
            self.note(&path);
            if path.is_dir() {
                self.note_tree(&path);
            }
        }
        self.note(dir);
    }

    /// Creates one of the possible trees after a power failure.
    fn image(&self, from: &Path, to: &Path, random: &mut Random, now: &HashMap<FileId, PathBuf>) {
        fs::create_dir_all(to).unwrap();
        let current = entries_of(from);
        let before = self.dirs.get(from).cloned().unwrap_or_default();
        let mut names: Vec<_> = current.keys().chain(before.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let (new, old) = (current.get(name), before.get(name));
            let entry = if random.below(2) == 0 { new } else { old };
            match entry {
                None => {}
                Some(Entry::Dir) => self.image(&from.join(name), &to.join(name), random, now),
                Some(Entry::File(id)) => {
                    let nothing = Content::default();
                    let old = self.files.get(id).unwrap_or(&nothing);
                    let new = now.get(id).map(|path| Content::of(path));
                    mix(old, new.as_ref().unwrap_or(old), &to.join(name), random);
                }
            }
        }
    }
}

/// Writes a file with a mix of old and new pages. Pages that never existed are holes.
fn mix(old: &Content, new: &Content, to: &Path, random: &mut Random) {
    let file = File::create(to).unwrap();
    let likely = 1 + random.below(9);
    let len = if random.below(2) == 0 {
        old.bytes.len()
    } else {
        new.bytes.len()
    };
    file.set_len(len as u64).unwrap();
    for at in (0..len).step_by(4096) {
        let from = if random.below(10) < likely { new } else { old };
        let end = from.bytes.len().min(at + 4096).min(len);
        if at < end && from.pages[at / 4096] {
            file.write_all_at(&from.bytes[at..end], at as u64).unwrap();
        }
    }
}

fn files_now(dir: &Path, out: &mut HashMap<FileId, PathBuf>) {
    for (name, entry) in entries_of(dir) {
        match entry {
            Entry::Dir => files_now(&dir.join(name), out),
            Entry::File(id) => drop(out.insert(id, dir.join(name))),
        }
    }
}

/// Records which names were synced.
struct Recorder<'a>(&'a LocalStore, Mutex<Option<Vec<ChunkName>>>);

impl ChunkStore for Recorder<'_> {
    fn put(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.0.put(name, form, data)
    }
    fn put_encoded(&self, name: &ChunkName, form: &ChunkForm, data: &[IoSlice<'_>]) -> Result<()> {
        self.0.put_encoded(name, form, data)
    }
    fn read_encoded(&self, name: &ChunkName) -> Result<Option<Vec<u8>>> {
        self.0.read_encoded(name)
    }
    fn blank(&self, name: &ChunkName, form: &ChunkForm) -> Result<Option<Blank>> {
        self.0.blank(name, form)
    }
    fn adopt(&self, blank: Blank, sums: &[u32]) -> Result<()> {
        self.0.adopt(blank, sums)
    }
    fn append(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        at: u64,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.0.append(name, form, at, data)
    }
    fn seal(&self, name: &ChunkName, form: &ChunkForm) -> Result<()> {
        self.0.seal(name, form)
    }
    fn write(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        data: &[IoSlice<'_>],
    ) -> Result<()> {
        self.0.write(name, form, slab, data)
    }
    fn patch(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        end: u64,
        patches: &mut dyn Patches,
    ) -> Result<()> {
        self.0.patch(name, form, end, patches)
    }
    fn read(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        out: &mut [u8],
    ) -> Result<()> {
        self.0.read(name, form, slab, out)
    }
    fn show(
        &self,
        name: &ChunkName,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.0.show(name, form, slab, f)
    }
    fn clip(&self, name: &ChunkName, form: &ChunkForm, keep: &[u64]) -> Result<()> {
        self.0.clip(name, form, keep)
    }
    fn punch(&self, name: &ChunkName, form: &ChunkForm, slab: &Hyperslab) -> Result<()> {
        self.0.punch(name, form, slab)
    }
    fn delete(&self, names: &[ChunkName]) -> Result<()> {
        self.0.delete(names)
    }
    fn delete_generation(&self, object: ObjectId, below: u32) -> Result<()> {
        self.0.delete_generation(object, below)
    }
    fn delete_grid(&self, object: ObjectId) -> Result<()> {
        self.0.delete_grid(object)
    }
    fn sync(&self, names: &[ChunkName]) -> Result<()> {
        *self.1.lock() = Some(names.to_vec());
        self.0.sync(names)
    }
    fn allocated(&self, name: &ChunkName, from: u64) -> Result<Allocated> {
        self.0.allocated(name, from)
    }

    fn list(&self, after: Option<ChunkName>, limit: usize) -> Result<Vec<(ChunkName, u64)>> {
        self.0.list(after, limit)
    }
    fn space(&self) -> Result<Space> {
        self.0.space()
    }
    fn verify(&self, name: &ChunkName) -> Result<()> {
        self.0.verify(name)
    }
}

/// The last synced state of a chunk, and its later states.
#[derive(Default)]
struct Past {
    synced: Option<Model>,
    since: Vec<Option<Model>>,
}

fn same(a: Option<&Model>, b: Option<&Model>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => a.bytes == b.bytes && a.sealed == b.sealed && a.form == b.form,
        _ => false,
    }
}

fn advance(
    past: &mut HashMap<ChunkName, Past>,
    before: &World,
    after: &World,
    synced: Option<Vec<ChunkName>>,
) {
    for name in before.keys().chain(after.keys()) {
        if !same(before.get(name), after.get(name)) {
            past.entry(name.clone())
                .or_default()
                .since
                .push(after.get(name).cloned());
        }
    }
    let Some(names) = synced else { return };
    let all = names.is_empty();
    for (name, past) in past.iter_mut() {
        if all || names.contains(name) {
            past.since.clear();
            past.synced = after.get(name).cloned();
        }
    }
}

fn check(store: &LocalStore, name: &ChunkName, past: &Past) {
    let read = |model: &Model| {
        let row = model.form.shape[1];
        let rows = model.bytes.len() as u64 / row;
        let slab = crate::store::conformance::boxed(&[0, 0], &[rows, row]);
        let mut out = vec![0; model.bytes.len()];
        store.read(name, &model.form, &slab, &mut out).map(|()| out)
    };
    // Unsynced chunks and chunks that were being deleted have no guarantee, but reading them must not panic.
    let Some(synced) = &past.synced else {
        for model in past.since.iter().flatten() {
            let _ = read(model);
        }
        return;
    };
    let sealed_since = past
        .since
        .iter()
        .any(|state| state.as_ref().is_none_or(|model| model.sealed));
    if sealed_since && past.since.iter().any(|state| state.is_none()) {
        let _ = read(synced);
        return;
    }
    let last = past.since.iter().flatten().find(|model| model.sealed);
    let got = match (read(synced), last) {
        (Err(StoreError::Invalid(_)), Some(sealed)) => {
            // Sealed and truncated since.
            assert_eq!(read(sealed).unwrap(), sealed.bytes, "{name} was cut");
            return;
        }
        (got, _) => got.unwrap_or_else(|error| panic!("{name} was synced: {error}")),
    };
    // The part that the seal was cutting off may be missing, entirely or partly.
    let len = last.map_or(got.len(), |sealed| sealed.bytes.len().min(got.len()));
    for (at, byte) in got[..len].iter().enumerate() {
        let known = *byte == synced.bytes[at]
            || past
                .since
                .iter()
                .flatten()
                .any(|model| model.bytes.get(at) == Some(byte));
        assert!(
            known,
            "{name} ({} bytes, {:?}): byte {at} is {byte}, was {}",
            got.len(),
            synced.form,
            synced.bytes[at]
        );
    }
    // The later part of a continued stream may be lost; then `verify` reports it.
    if past.since.is_empty() || matches!(name, ChunkName::Grid { .. }) {
        store.verify(name).unwrap();
    }
}

fn lose_power(seed: u64, open_files: Option<usize>) {
    let (dir, images) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut random = Random::new(seed);
    let mut path = dir.path().to_owned();
    let mut world = World::new();
    let mut past: HashMap<ChunkName, Past> = HashMap::new();
    for round in 0..3 {
        let store = LocalStore::open(
            &path,
            LocalOptions {
                fsync: true,
                open_files,
            },
        )
        .unwrap();
        let disk = Arc::new(Mutex::new(Disk::default()));
        disk.lock().note_tree(&path);
        let witness = Arc::clone(&disk);
        *store.shared.witness.lock() =
            Some(Witness(Box::new(move |path| witness.lock().note(path))));
        for _ in 0..60 {
            let before = world.clone();
            let recorder = Recorder(&store, Mutex::new(None));
            step(&recorder, &mut random, &mut world);
            advance(&mut past, &before, &world, recorder.1.into_inner());
        }
        let image = images.path().join(round.to_string());
        let mut now = HashMap::new();
        files_now(&path, &mut now);
        disk.lock().image(&path, &image, &mut random, &now);
        store.crash();
        let store = LocalStore::open(
            &image,
            LocalOptions {
                fsync: true,
                open_files,
            },
        )
        .unwrap();
        for (name, past) in &past {
            check(&store, name, past);
        }
        // Delete all chunks in an uncertain state, and continue with the image.
        let uncertain: Vec<_> = past
            .iter()
            .filter(|(_, past)| !past.since.is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        store.delete(&uncertain).unwrap();
        past.retain(|name, _| !uncertain.contains(name));
        world.retain(|name, _| !uncertain.contains(name));
        store.close().unwrap();
        path = image;
    }
}

#[test]
fn power_is_lost() {
    for seed in 1..=12 {
        lose_power(seed, None);
    }
}

#[test]
fn power_is_lost_with_few_open_files() {
    for seed in 100..=106 {
        lose_power(seed, Some(2));
    }
}

#[test]
#[ignore = "takes minutes"]
fn power_is_lost_often() {
    for seed in 1000..1300 {
        lose_power(seed, [None, Some(1), Some(4)][seed as usize % 3]);
    }
}

//! Tests of truncated files, flipped bits, garbage at the end, and killed processes.

use std::fs::{self, OpenOptions};
use std::io::{IoSlice, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use slabfs_model::Codec;

use super::super::*;
use crate::store::conformance::random::{World, compare, step};
use crate::store::conformance::{Random, boxed, fill, form, free, grid, noise, read, smooth};

fn fast() -> LocalOptions {
    LocalOptions {
        fsync: false,
        open_files: None,
    }
}

fn files_of(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_of(&path, out);
        } else if path.extension().is_some_and(|e| e == "seg" || e == "chunk") {
            out.push(path);
        }
    }
    out.sort();
}

/// Stores one chunk of each kind; returns them with their contents.
fn fill_store(store: &LocalStore) -> Vec<(ChunkName, ChunkForm, Vec<u8>)> {
    let mut chunks = Vec::new();
    for (i, len) in [500usize, 20_000, 100_000, 5_000_000]
        .into_iter()
        .enumerate()
    {
        for (j, codec) in [Codec::None, Codec::ShuffleZstd(1)].into_iter().enumerate() {
            let (name, form) = (
                free(i as u64 * 2 + j as u64),
                form(&[len as u64], 4, codec, &[]),
            );
            // Noise, so that compression does not make all of them small.
            let mut data = smooth(len, i as u64);
            for (byte, noise) in data.iter_mut().zip(noise(len / 4, 7)).step_by(2) {
                *byte = noise;
            }
            store.put(&name, &form, &[IoSlice::new(&data)]).unwrap();
            chunks.push((name, form, data));
        }
        let (name, form) = (
            grid(i as u64, 0, &[0]),
            form(&[1 << 26], 4, Codec::None, &[]),
        );
        let data = noise(len, 50 + i as u64);
        store
            .write(
                &name,
                &form,
                &boxed(&[0], &[len as u64]),
                &[IoSlice::new(&data)],
            )
            .unwrap();
        chunks.push((name, form, data));
    }
    chunks
}

/// Reads each chunk: its bytes must be right, or it must fail. Returns the numbers of right and failed chunks.
fn tally(
    store: &LocalStore,
    chunks: &[(ChunkName, ChunkForm, Vec<u8>)],
    context: &str,
) -> (usize, usize) {
    let (mut right, mut wrong) = (0, 0);
    for (name, form, data) in chunks {
        let mut out = vec![0; data.len()];
        match store.read(name, form, &boxed(&[0], &[data.len() as u64]), &mut out) {
            Ok(()) => {
                assert!(out == *data, "{context}: {name} reads wrong");
                store.verify(name).unwrap();
                right += 1;
            }
            Err(StoreError::Damaged {
                name: named,
                detail,
            }) => {
                assert!(named == *name && !detail.is_empty());
                assert!(store.verify(name).is_err(), "{context}: {name} verifies");
                wrong += 1;
            }
            Err(StoreError::Missing(named)) => {
                assert_eq!(named, *name);
                wrong += 1;
            }
            Err(error) => panic!("{context}: {name}: {error}"),
        }
    }
    (right, wrong)
}

#[test]
fn a_killed_process_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 1..4 {
        let mut random = Random::new(seed);
        let mut world = World::new();
        let mut open = None;
        for round in 0..4 {
            let options = LocalOptions {
                fsync: false,
                open_files: (round % 2 == 0).then_some(2),
            };
            let store = LocalStore::open(dir.path(), options).unwrap();
            for _ in 0..60 {
                step(&store, &mut random, &mut world);
            }
            store.crash();
            let store = LocalStore::open(dir.path(), fast()).unwrap();
            compare(&store, &world);
            if round == 1 {
                store.close().unwrap()
            } else {
                store.crash()
            }
            open = Some(round);
        }
        assert_eq!(open, Some(3));
        let store = LocalStore::open(dir.path(), fast()).unwrap();
        compare(&store, &world);
        store
            .delete(&world.into_keys().collect::<Vec<_>>())
            .unwrap();
    }
}

#[test]
fn a_flipped_bit_damages_one_chunk_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    let chunks = fill_store(&store);
    store.close().unwrap();
    let mut files = Vec::new();
    files_of(dir.path(), &mut files);
    let mut random = Random::new(3);
    let mut seen = 0;
    for round in 0..120 {
        let path = &files[round % files.len()];
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let at = random.below(if round % 3 == 0 {
            200
        } else {
            file.metadata().unwrap().len()
        });
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << random.below(8)], at)
            .unwrap();
        let store = LocalStore::open(dir.path(), fast()).unwrap();
        let (_, wrong) = tally(&store, &chunks, &format!("{} byte {at}", path.display()));
        assert!(
            wrong <= 1,
            "{} byte {at}: {wrong} chunks are gone",
            path.display()
        );
        seen += wrong;
        store.close().unwrap();
        file.write_all_at(&byte, at).unwrap();
    }
    assert!(
        seen > 40,
        "only {seen} of 120 flips were noticed; most bytes are data"
    );
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    assert_eq!(tally(&store, &chunks, "repaired"), (chunks.len(), 0));
}

#[test]
fn damage_names_the_block_and_the_rest_reads() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    let (name, form) = (free(1), form(&[1_000_000], 1, Codec::None, &[]));
    let data = noise(1_000_000, 1);
    store.put(&name, &form, &[IoSlice::new(&data)]).unwrap();
    let mut files = Vec::new();
    files_of(dir.path(), &mut files);
    let path = files
        .iter()
        .find(|path| path.extension().unwrap() == "chunk")
        .unwrap();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[!data[200_000]], 8192 + 200_000)
        .unwrap();
    let mut out = vec![0; 10];
    let error = store
        .read(&name, &form, &boxed(&[200_000], &[10]), &mut out)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("chunk ") && error.contains("block 3 (bytes 196608..262144)"),
        "{error}"
    );
    assert!(
        store
            .show(&name, &form, &boxed(&[0], &[300_000]), &mut |_| panic!(
                "shown"
            ))
            .is_err()
    );
    assert!(store.verify(&name).is_err());
    for (at, len) in [(0, 196_608), (262_144, 737_856)] {
        assert_eq!(
            read(&store, &name, &form, &boxed(&[at], &[len])),
            data[at as usize..(at + len) as usize]
        );
    }
}

#[test]
fn writing_with_damage_does_not_hide_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    let (name, form) = (
        grid(1, 0, &[0, 0]),
        form(&[1000, 1000], 1, Codec::None, &[]),
    );
    let data = noise(1_000_000, 1);
    store
        .write(
            &name,
            &form,
            &boxed(&[0, 0], &[1000, 1000]),
            &[IoSlice::new(&data)],
        )
        .unwrap();
    let mut files = Vec::new();
    files_of(dir.path(), &mut files);
    let path = files
        .iter()
        .find(|path| path.extension().unwrap() == "chunk")
        .unwrap();
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[!data[10]], 8192 + 10).unwrap();
    store
        .write(
            &name,
            &form,
            &boxed(&[1, 0], &[1, 5]),
            &[IoSlice::new(&[1; 5])],
        )
        .unwrap();
    assert!(
        store
            .write(
                &name,
                &form,
                &boxed(&[1, 0], &[20, 990]),
                &[IoSlice::new(&[1; 19_800])]
            )
            .is_err()
    );
    assert!(
        store
            .read(&name, &form, &boxed(&[1, 0], &[1, 1]), &mut [0])
            .is_err()
    );
    // Overwriting all of it repairs it.
    store
        .write(
            &name,
            &form,
            &boxed(&[0, 0], &[66, 1000]),
            &[IoSlice::new(&[2; 66_000])],
        )
        .unwrap();
    assert_eq!(read(&store, &name, &form, &boxed(&[0, 8], &[1, 4])), [2; 4]);
    store.verify(&name).unwrap();
}

#[test]
fn files_truncated_anywhere_give_errors_and_no_wrong_bytes() {
    let (dir, copy) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    let chunks = fill_store(&store);
    store.close().unwrap();
    let mut files = Vec::new();
    files_of(dir.path(), &mut files);
    let mut random = Random::new(4);
    for round in 0..60 {
        let path = &files[round % files.len()];
        let saved = copy.path().join("saved");
        fs::copy(path, &saved).unwrap();
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let len = file.metadata().unwrap().len();
        let to = [
            0,
            1,
            4096,
            8192,
            len - 1,
            random.below(len),
            random.below(len),
        ][random.below(7) as usize]
            .min(len - 1);
        file.set_len(to).unwrap();
        let context = format!("{} cut from {len} to {to}", path.display());
        let store = LocalStore::open(dir.path(), fast()).unwrap();
        let (right, wrong) = tally(&store, &chunks, &context);
        let is_segment = path.extension().unwrap() == "seg";
        assert!(
            is_segment && right >= 5 || wrong <= 1,
            "{context}: {wrong} chunks are gone"
        );
        store.crash();
        // Reopening does not hide the damage.
        let store = LocalStore::open(dir.path(), fast()).unwrap();
        assert_eq!(tally(&store, &chunks, &context), (right, wrong));
        store.close().unwrap();
        fs::copy(&saved, path).unwrap();
    }
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    assert_eq!(tally(&store, &chunks, "repaired"), (chunks.len(), 0));
}

/// `file_part` verifies like a read; the chunk has more blocks than are checksummed at once.
#[test]
fn damaged_parts_of_files_are_not_handed_out() {
    let dir = tempfile::tempdir().unwrap();
    let (name, form) = (free(1), form(&[1_000_003], 1, Codec::None, &[]));
    let data = noise(1_000_003, 1);
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    store.put(&name, &form, &[IoSlice::new(&data)]).unwrap();
    drop(store);
    let path = chunk_file(dir.path());
    let part = |store: &LocalStore, at: u64, len: u64| {
        let mut seen = Vec::new();
        let slab = boxed(&[at], &[len]);
        let in_file = store.file_part(&name, &form, &slab, &mut |part| {
            seen = vec![0; part.len as usize];
            part.file.read_exact_at(&mut seen, part.at).unwrap();
        });
        in_file.map(|in_file| {
            assert!(in_file && seen == data[at as usize..(at + len) as usize]);
        })
    };
    for at in [0usize, 262_143, 262_144, 700_000, 1_000_002] {
        overwrite(&path, DATA + at as u64, &[!data[at]]);
        // Reopen, because recently verified blocks are not verified again.
        let store = LocalStore::open(dir.path(), fast()).unwrap();
        let block = at as u64 / 65_536;
        let error = part(&store, 0, 1_000_003).unwrap_err().to_string();
        assert!(error.contains(&format!("block {block} ")), "{error}");
        assert!(part(&store, at as u64, 1).is_err());
        if block > 0 {
            part(&store, 0, block * 65_536).unwrap();
        }
        if block < 15 {
            let behind = (block + 1) * 65_536;
            part(&store, behind, 1_000_003 - behind).unwrap();
        }
        overwrite(&path, DATA + at as u64, &[data[at]]);
    }
    // Truncated while it is open.
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    part(&store, 0, 1).unwrap();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(DATA + 400_000).unwrap();
    assert!(part(&store, 0, 1_000_003).is_err() && part(&store, 350_000, 100_000).is_err());
    part(&store, 0, 300_000).unwrap();
}

#[test]
fn a_file_truncated_while_open_gives_an_error_and_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    let chunks = fill_store(&store);
    assert_eq!(tally(&store, &chunks, "intact").1, 0);
    let mut files = Vec::new();
    files_of(dir.path(), &mut files);
    for path in &files {
        OpenOptions::new()
            .write(true)
            .open(path)
            .unwrap()
            .set_len(5000)
            .unwrap();
    }
    let (right, wrong) = tally(&store, &chunks, "cut");
    assert!(
        wrong >= 6 && right + wrong == chunks.len(),
        "{right} read, {wrong} do not"
    );
}

#[test]
fn garbage_at_the_end_of_a_segment_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    let chunks = fill_store(&store);
    store.crash();
    let mut files = Vec::new();
    files_of(dir.path(), &mut files);
    for (round, len) in [1usize, 63, 5000, 100_000].into_iter().enumerate() {
        for path in files
            .iter()
            .filter(|path| path.extension().unwrap() == "seg")
        {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(&noise(len, round as u64)).unwrap();
        }
        let store = LocalStore::open(dir.path(), fast()).unwrap();
        assert_eq!(tally(&store, &chunks, "garbage").1, 0);
        let (name, form) = (free(100 + round as u64), form(&[9], 1, Codec::None, &[]));
        store.put(&name, &form, &[IoSlice::new(&[7; 9])]).unwrap();
        store.crash();
        let store = LocalStore::open(dir.path(), fast()).unwrap();
        assert_eq!(read(&store, &name, &form, &boxed(&[0], &[9])), [7; 9]);
        assert_eq!(tally(&store, &chunks, "garbage and a record").1, 0);
        store.crash();
    }
}

#[test]
fn deleted_chunks_stay_deleted_and_their_space_is_freed() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    let form = form(&[3000], 1, Codec::None, &[]);
    let data = noise(3000, 1);
    // 100 MB: more than a segment.
    for id in 0..30_000 {
        store.put(&free(id), &form, &[IoSlice::new(&data)]).unwrap();
    }
    let taken = || {
        use std::os::unix::fs::MetadataExt;
        let mut files = Vec::new();
        files_of(dir.path(), &mut files);
        files
            .iter()
            .map(|path| fs::metadata(path).unwrap().blocks() * 512)
            .sum::<u64>()
    };
    let full = taken();
    assert!(full > 90_000_000);
    let keep = |id: u64| id.is_multiple_of(100);
    for id in (0..30_000).filter(|id| !keep(*id)) {
        store.delete(&[free(id)]).unwrap();
    }
    assert!(
        taken() < full / 20,
        "{} of {full} bytes are still taken",
        taken()
    );
    store.crash();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    let left = store.list(None, usize::MAX).unwrap();
    assert_eq!(left.len(), 300);
    for (name, _) in &left {
        assert_eq!(read(&store, name, &form, &boxed(&[0], &[3000])), data);
    }
    store
        .delete(&left.into_iter().map(|(name, _)| name).collect::<Vec<_>>())
        .unwrap();
    assert!(taken() < 2_000_000, "{} bytes are still taken", taken());
}

#[test]
fn records_cut_off_a_cleanly_closed_segment_are_damaged_and_not_missing() {
    let (dir, form) = (
        tempfile::tempdir().unwrap(),
        form(&[3000], 1, Codec::None, &[]),
    );
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    let data = noise(3000, 1);
    let names: Vec<_> = (0..10).map(|at| grid(1, 0, &[at])).collect();
    for name in &names {
        store
            .write(name, &form, &boxed(&[0], &[3000]), &[IoSlice::new(&data)])
            .unwrap();
    }
    store.close().unwrap();
    let mut files = Vec::new();
    files_of(dir.path(), &mut files);
    let file = OpenOptions::new().write(true).open(&files[0]).unwrap();
    file.set_len(64 + 5 * 3200).unwrap();
    let outcomes = |store: &LocalStore| -> Vec<bool> {
        let state = |name| match store.read(name, &form, &boxed(&[0], &[3000]), &mut [0; 3000]) {
            Ok(()) => true,
            Err(StoreError::Damaged { .. }) => false,
            Err(error) => panic!("{name}: {error}"),
        };
        names.iter().map(state).collect()
    };
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    let first = outcomes(&store);
    assert!(first.iter().filter(|read| **read).count() >= 4);
    assert!(!first[9]);
    store.crash();
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    assert_eq!(outcomes(&store), first);
    store.close().unwrap();
    // A damaged catalogue is ignored.
    let catalogue = dir.path().join("catalogue");
    let mut bytes = fs::read(&catalogue).unwrap();
    bytes[30] ^= 1;
    fs::write(&catalogue, bytes).unwrap();
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    assert_eq!(read(&store, &names[0], &form, &boxed(&[0], &[3000])), data);
}

#[test]
fn a_store_that_lost_its_count_of_openings_is_scanned() {
    let (dir, form) = (
        tempfile::tempdir().unwrap(),
        form(&[3000], 1, Codec::None, &[]),
    );
    let name = grid(1, 0, &[0]);
    let slab = boxed(&[0], &[3000]);
    for round in 0..3u8 {
        let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
        store
            .write(&name, &form, &slab, &[IoSlice::new(&[round; 3000])])
            .unwrap();
        store.close().unwrap();
        for file in ["opened", "opened.copy"] {
            fs::remove_file(dir.path().join(file)).unwrap();
        }
        let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
        assert_eq!(read(&store, &name, &form, &slab), [round; 3000]);
    }
    for file in ["opened", "opened.copy"] {
        fs::write(dir.path().join(file), "often").unwrap();
    }
    let error = LocalStore::open(dir.path(), LocalOptions::default()).unwrap_err();
    assert!(error.to_string().contains("one that is surely larger"));
}

/// A grid chunk whose file is lost is damaged; one that was deleted or never written is missing.
#[test]
fn a_grid_chunk_whose_file_is_lost_does_not_read_as_fill() {
    let dir = tempfile::tempdir().unwrap();
    let form = form(&[1 << 20], 1, Codec::None, &[]);
    let all_cells = Hyperslab::all(&[200_000]);
    let data = noise(200_000, 3);
    let write = |store: &LocalStore, name: &ChunkName| {
        store
            .write(name, &form, &all_cells, &[IoSlice::new(&data)])
            .unwrap();
    };
    let get = |store: &LocalStore, name: &ChunkName| {
        store.read(name, &form, &all_cells, &mut vec![0; 200_000])
    };
    let names = [0, 1, 2].map(|at| grid(9, 1, &[at]));
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    names.iter().for_each(|name| write(&store, name));
    store.sync(&names[..1]).unwrap();
    store.sync(&[]).unwrap();
    store.delete(&names[2..]).unwrap();
    let paths = [0, 1].map(|at| store.directory.chunk_path(&names[at]));
    store.crash();
    let copy = fs::read(&paths[0]).unwrap();
    fs::remove_file(&paths[0]).unwrap();
    for _ in 0..3 {
        let store = LocalStore::open(dir.path(), fast()).unwrap();
        let error = get(&store, &names[0]).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains("gone"), "{error}");
        let part = store.write(
            &names[0],
            &form,
            &Hyperslab::all(&[10]),
            &[IoSlice::new(&[1; 10])],
        );
        assert!(part.is_err(), "the rest would read as fill");
        get(&store, &names[1]).unwrap();
        let error = get(&store, &names[2]).unwrap_err();
        assert!(matches!(error, StoreError::Missing(_)), "{error}");
        assert_eq!(store.list(None, 10).unwrap().len(), 2);
        store.close().unwrap();
    }
    // Restored from a copy.
    fs::write(&paths[0], &copy).unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    assert_eq!(read(&store, &names[0], &form, &all_cells), data);
    store.close().unwrap();
    // If the roll is missing, the existing files are entered into a new one; files lost before that are unknown.
    fs::remove_file(dir.path().join("roll")).unwrap();
    fs::remove_file(&paths[1]).unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    assert!(matches!(
        get(&store, &names[1]),
        Err(StoreError::Missing(_))
    ));
    store.crash();
    fs::remove_file(&paths[0]).unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    assert!(matches!(
        get(&store, &names[0]),
        Err(StoreError::Damaged { .. })
    ));
    // The object is emptied or removed: the chunk is no longer referenced.
    let ChunkName::Grid { object, .. } = names[0] else {
        panic!("a grid chunk")
    };
    store.delete_grid(object).unwrap();
    store.close().unwrap();
    let store = LocalStore::open(dir.path(), fast()).unwrap();
    let error = get(&store, &names[0]).unwrap_err();
    assert!(matches!(error, StoreError::Missing(_)), "{error}");
    assert!(store.list(None, 10).unwrap().is_empty());
}

/// The path of the only file of a chunk in a store.
fn chunk_file(dir: &Path) -> PathBuf {
    let mut files = Vec::new();
    files_of(dir, &mut files);
    files.retain(|path| path.extension().is_some_and(|e| e == "chunk"));
    assert_eq!(files.len(), 1);
    files.remove(0)
}

/// A store with one grid chunk in a file: its name, form and data.
fn one_grid_chunk(store: &LocalStore) -> (ChunkName, ChunkForm, Vec<u8>) {
    let (name, form) = (grid(1, 0, &[0]), form(&[1 << 26], 4, Codec::None, &[]));
    let data = noise(300_000, 3);
    let slab = boxed(&[0], &[data.len() as u64]);
    store
        .write(&name, &form, &slab, &[IoSlice::new(&data)])
        .unwrap();
    (name, form, data)
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
}

/// The file offsets of the first checksum page and the data of a chunk with a short name.
const SUMS: u64 = 4096;
const DATA: u64 = 8192;

#[test]
fn damaged_checksum_pages_of_a_cleanly_closed_store_are_damage() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    let (name, form, data) = one_grid_chunk(&store);
    store.close().unwrap();
    let path = chunk_file(dir.path());
    overwrite(&path, SUMS, &noise(2176, 9));
    overwrite(&path, DATA + 1000, &[!data[1000]]);
    let damaged = fs::read(&path).unwrap();
    for _ in 0..3 {
        let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
        let mut out = vec![0; data.len()];
        let all = boxed(&[0], &[data.len() as u64]);
        let read = store.read(&name, &form, &all, &mut out);
        assert!(matches!(&read, Err(StoreError::Damaged { .. })), "{read:?}");
        assert!(store.verify(&name).is_err());
        store.close().unwrap();
        assert!(fs::read(&path).unwrap() == damaged, "it was changed");
    }
}

#[test]
fn torn_checksum_pages_are_repaired_before_the_store_is_closed_cleanly() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    let (name, form, data) = one_grid_chunk(&store);
    store.crash();
    let path = chunk_file(dir.path());
    overwrite(&path, SUMS + 128, &noise(500, 9));
    // The chunk is not read during the first opening after the crash.
    for _ in 0..2 {
        let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
        store.close().unwrap();
    }
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    let all = boxed(&[0], &[data.len() as u64]);
    assert!(read(&store, &name, &form, &all) == data);
    store.verify(&name).unwrap();
}

#[test]
fn a_chunk_whose_creation_a_crash_interrupted_can_be_created() {
    let dir = tempfile::tempdir().unwrap();
    let (name, form) = (free(1), form(&[300_000], 4, Codec::None, &[]));
    let data = noise(300_000, 3);
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    store.put(&name, &form, &[IoSlice::new(&data)]).unwrap();
    store.crash();
    fs::write(chunk_file(dir.path()), []).unwrap();
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    store.put(&name, &form, &[IoSlice::new(&data)]).unwrap();
    let all = boxed(&[0], &[data.len() as u64]);
    assert!(read(&store, &name, &form, &all) == data);
}

/// All files below a directory of the store.
fn files_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files_below(&path)),
            false => found.push(path),
        }
    }
    found
}

#[test]
fn files_to_be_filled_are_removed_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let form = form(&[300_000], 4, Codec::None, &[]);
    let all = boxed(&[0], &[300_000]);
    let data = noise(300_000, 3);
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    let blank = |id| store.blank(&free(id), &form).unwrap().unwrap();
    // One empty, one partly filled, one filled, and one adopted; then one that had its head already.
    let (empty, part, full, adopted) = (blank(1), blank(2), blank(3), blank(4));
    let file = part.for_writing().unwrap();
    file.write_all_at(&data[..70_000], part.places()[0].at)
        .unwrap();
    fill(&full, &data);
    fill(&adopted, &data);
    store.adopt(adopted, &[]).unwrap();
    let chunk = chunk_file(dir.path());
    fs::copy(&chunk, chunk.with_file_name("0000000000000005.9.tmp")).unwrap();
    let late = full.for_writing().unwrap();
    drop(blank(6));
    assert_eq!(files_below(&dir.path().join("free")).len(), 5);
    for killed in [empty, part, full] {
        std::mem::forget(killed);
    }
    store.crash();
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    assert_eq!(files_below(&dir.path().join("free")), [chunk]);
    assert!(read(&store, &free(4), &form, &all) == data);
    for id in [1, 2, 3, 5, 6] {
        let missing = store.verify(&free(id));
        assert_eq!(missing, Err(StoreError::Missing(free(id))));
        store.put(&free(id), &form, &[IoSlice::new(&data)]).unwrap();
    }
    // A client that received a file before the crash may still write to it.
    late.write_all_at(&[0xEE; 100_000], 4096).unwrap();
    for id in 1..=6 {
        assert!(read(&store, &free(id), &form, &all) == data, "{id}");
    }
}

#[test]
fn a_grid_chunk_whose_creation_a_crash_interrupted_can_be_created() {
    let dir = tempfile::tempdir().unwrap();
    drop(LocalStore::open(dir.path(), LocalOptions::default()).unwrap());
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    let (name, form, data) = one_grid_chunk(&store);
    store.crash();
    let path = chunk_file(dir.path());
    fs::write(&path, []).unwrap();
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    let all = boxed(&[0], &[data.len() as u64]);
    let mut out = vec![7; data.len()];
    let missing = store.read(&name, &form, &all, &mut out);
    assert!(
        matches!(missing, Err(StoreError::Missing(_))),
        "{missing:?}"
    );
    // Once it was on disk, its loss is reported.
    store
        .write(&name, &form, &all, &[IoSlice::new(&data)])
        .unwrap();
    store.sync(std::slice::from_ref(&name)).unwrap();
    store.crash();
    fs::write(&path, []).unwrap();
    let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
    let mut out = vec![0; data.len()];
    let lost = store.read(&name, &form, &all, &mut out);
    assert!(matches!(&lost, Err(StoreError::Damaged { .. })), "{lost:?}");
}

/// Truncates the only file of a kind to `len`.
fn cut(dir: &Path, extension: &str, len: u64) {
    let mut files = Vec::new();
    files_of(dir, &mut files);
    files.retain(|path| path.extension().unwrap() == extension);
    let [path] = files.as_slice() else {
        panic!("{files:?}")
    };
    let file = OpenOptions::new().write(true).open(path).unwrap();
    assert!(file.metadata().unwrap().len() >= len, "{path:?}: {len}");
    file.set_len(len).unwrap();
}

#[test]
fn a_chunk_truncated_anywhere_by_a_crash_can_be_put_again() {
    for (len, extension, codec) in [
        (20_000usize, "seg", Codec::None),
        (20_000, "seg", Codec::ShuffleZstd(1)),
        (300_000, "chunk", Codec::None),
        (300_000, "seg", Codec::ShuffleZstd(1)),
        (1_400_000, "chunk", Codec::ShuffleZstd(1)),
    ] {
        let (name, form) = (free(1), form(&[len as u64], 4, codec, &[]));
        let data = match codec {
            Codec::None => noise(len, 3),
            _ => noise(len / 2, 3).into_iter().flat_map(|b| [b, 0]).collect(),
        };
        let all = boxed(&[0], &[data.len() as u64]);
        let stored = {
            let dir = tempfile::tempdir().unwrap();
            let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
            store.put(&name, &form, &[IoSlice::new(&data)]).unwrap();
            store.crash();
            let mut files = Vec::new();
            files_of(dir.path(), &mut files);
            fs::metadata(&files[0]).unwrap().len()
        };
        for part in 0..12 {
            let dir = tempfile::tempdir().unwrap();
            let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
            store.put(&name, &form, &[IoSlice::new(&data)]).unwrap();
            store.crash();
            cut(dir.path(), extension, stored * part / 12);
            let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
            store
                .put(&name, &form, &[IoSlice::new(&data)])
                .unwrap_or_else(|error| panic!("{len} {codec:?} {part}: {error}"));
            let other = free(2);
            store.put(&other, &form, &[IoSlice::new(&data)]).unwrap();
            store.crash();
            let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
            for name in [&name, &other] {
                assert!(
                    read(&store, name, &form, &all) == data,
                    "{len} {codec:?} {part}"
                );
                store.verify(name).unwrap();
            }
        }
    }
}

#[test]
fn the_first_cells_of_a_grid_chunk_truncated_by_a_crash_can_be_written_again() {
    let (name, form) = (grid(1, 0, &[0]), form(&[1 << 20], 4, Codec::None, &[]));
    let data = noise(20_000, 3);
    // Not at the chunk's beginning: the bytes before them are read from the present chunk.
    let all = boxed(&[100], &[data.len() as u64]);
    for part in 0..12 {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
        let bytes = &[IoSlice::new(&data)];
        store.write(&name, &form, &all, bytes).unwrap();
        store.crash();
        cut(dir.path(), "seg", 20_000 * part / 12);
        let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
        store.write(&name, &form, &all, bytes).unwrap();
        store.crash();
        let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
        assert!(read(&store, &name, &form, &all) == data, "{part}");
    }
}

#[test]
fn a_stream_truncated_by_a_crash_can_be_continued() {
    let (name, form) = (free(1), form(&[400_000], 4, Codec::None, &[]));
    let data = noise(400_000, 3);
    let (first, second) = data.split_at(200_000);
    for len in [200_000u64, 230_000, 300_000, 390_000] {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
        store
            .append(&name, &form, 0, &[IoSlice::new(first)])
            .unwrap();
        let mut files = Vec::new();
        files_of(dir.path(), &mut files);
        let before = fs::metadata(&files[0]).unwrap().len();
        store
            .append(&name, &form, 200_000, &[IoSlice::new(second)])
            .unwrap();
        store.crash();
        cut(dir.path(), "chunk", before.max(len));
        let store = LocalStore::open(dir.path(), LocalOptions::default()).unwrap();
        store
            .append(&name, &form, 200_000, &[IoSlice::new(second)])
            .unwrap_or_else(|error| panic!("{len}: {error}"));
        store.seal(&name, &form).unwrap();
        assert!(read(&store, &name, &form, &boxed(&[0], &[400_000])) == data);
    }
}

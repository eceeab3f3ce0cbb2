//! Tests of reading large chunks of servers on the same host from their files.

use std::fs::OpenOptions;
use std::io::{Read, Seek, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use slabfs_model::batch::{Batch, Pattern, Place as BatchPlace, Plan};

use super::*;
use crate::store::{LocalOptions, LocalStore};
use crate::wire::MAX_FILES;

const LEN: u64 = 1 << 20;
const BLOCK: u64 = crate::store::SUMMED;
const SERVER: ServerId = ServerId(1);

/// A data server over a directory, and a client that reads from it.
struct LocalRig {
    dir: tempfile::TempDir,
    store: Arc<LocalStore>,
    servers: Servers,
    server: Option<DataServer>,
}

impl LocalRig {
    fn new() -> LocalRig {
        let dir = tempfile::tempdir().unwrap();
        let fast = LocalOptions {
            fsync: false,
            ..LocalOptions::default()
        };
        let store = Arc::new(LocalStore::open(&dir.path().join("store"), fast).unwrap());
        let addr = Addr::Unix(dir.path().join("socket"));
        let listener = Listener::bind(&addr, None).unwrap();
        let server = DataServer::start(store.clone(), listener).unwrap();
        let servers = Servers::new(Options {
            deadline: Duration::from_secs(10),
            ..Options::default()
        });
        servers.set_remote(SERVER, addr);
        LocalRig {
            dir,
            store,
            servers,
            server: Some(server),
        }
    }

    fn put(&self, id: u64, len: u64) -> Vec<u8> {
        let data = noise(len as usize, id as u8);
        self.store
            .put(&free(id), &form(&[len]), &[IoSlice::new(&data)])
            .unwrap();
        data
    }

    /// Reads a part of a chunk, and returns the number of messages it took.
    fn read(&self, id: u64, len: u64, from: u64, to: u64) -> (Result<Vec<u8>>, u64) {
        let before = self.servers.counters().snapshot();
        let mut out = vec![0xEE; (to - from) as usize];
        let slab = Hyperslab::from_region(&Region::new(&[from], &[to - from]));
        let (name, form) = (free(id), form(&[len]));
        let mut piece = [ReadPiece {
            server: SERVER,
            name: &name,
            form: &form,
            slab: &slab,
            out: &mut out,
            found: true,
        }];
        let read = self.servers.read(&mut piece).map_err(|(_, error)| error);
        let found = piece[0].found;
        let after = self.servers.counters().snapshot();
        let messages = after.messages - before.messages;
        if read.is_ok() {
            assert_eq!(after.read.messages - before.read.messages, messages);
        }
        let read = read.and_then(|()| match found {
            true => Ok(out),
            false => Err(StoreError::Missing(name)),
        });
        (read, messages)
    }

    /// Shows a part of a chunk without waiting.
    fn shown(&self, id: u64, from: u64, to: u64) -> Option<Vec<u8>> {
        self.shown_to(id, from, to, false)
    }

    fn shown_to(&self, id: u64, from: u64, to: u64, keeps: bool) -> Option<Vec<u8>> {
        let before = self.servers.counters().snapshot();
        let slab = Hyperslab::from_region(&Region::new(&[from], &[to - from]));
        let mut seen = None;
        let mut failed = None;
        let mut give = |bytes: &[u8]| {
            // The kernel copies, as it does for a mount, and reports a truncated file as an error.
            let mut copy = tempfile::tempfile().unwrap();
            match copy.write_all(bytes) {
                Ok(()) => {
                    copy.rewind().unwrap();
                    let mut bytes = Vec::new();
                    copy.read_to_end(&mut bytes).unwrap();
                    seen = Some(bytes);
                }
                Err(error) => failed = error.raw_os_error(),
            }
        };
        let shown =
            self.servers
                .show_at_once(SERVER, &free(id), &form(&[LEN]), &slab, keeps, &mut give);
        assert!(matches!(failed, None | Some(libc::EFAULT)), "{failed:?}");
        assert_eq!(shown, seen.is_some() || failed.is_some());
        let after = self.servers.counters().snapshot();
        assert_eq!(after.messages, before.messages);
        seen
    }

    fn file(&self, id: u64) -> PathBuf {
        fn below(dir: PathBuf, found: &mut Vec<PathBuf>) {
            for entry in dir.read_dir().unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => below(path, found),
                    false => found.push(path),
                }
            }
        }
        let mut found = Vec::new();
        below(self.dir.path().join("store/free"), &mut found);
        let holds = |path: &&PathBuf| {
            let mut bytes = Vec::new();
            let mut file = std::fs::File::open(path).unwrap();
            file.read_to_end(&mut bytes).unwrap();
            let data = noise(1000, id as u8);
            bytes.windows(1000).any(|part| part == data)
        };
        found.iter().find(holds).expect("a file").clone()
    }
}

#[test]
fn a_file_is_requested_once() {
    let rig = LocalRig::new();
    let data = rig.put(1, LEN);
    // A read this small does not request a file.
    let (read, messages) = rig.read(1, LEN, 10, 1000);
    assert_eq!((read.unwrap() == data[10..1000], messages), (true, 1));
    assert!(!rig.servers.has_same_host_files());
    let (read, messages) = rig.read(1, LEN, 7, 900_000);
    assert_eq!((read.unwrap() == data[7..900_000], messages), (true, 1));
    assert!(rig.servers.is_same_host(SERVER, &free(1)));
    for (from, to) in [(0, LEN), (65_535, 65_537), (LEN - 1, LEN)] {
        let (read, messages) = rig.read(1, LEN, from, to);
        let wanted = &data[from as usize..to as usize];
        assert_eq!((read.unwrap() == wanted, messages), (true, 0));
    }
    let slab = Hyperslab::from_region(&Region::new(&[5], &[6]));
    let mut seen = Vec::new();
    let shown = rig
        .servers
        .show(SERVER, &free(1), &form(&[LEN]), &slab, &mut |bytes| {
            seen.extend_from_slice(bytes)
        });
    assert_eq!((shown, &seen[..]), (Ok(true), &data[5..11]));
    // The server still refuses a form that does not fit the chunk, and no file is requested again.
    let (read, messages) = rig.read(1, LEN + 5, 0, LEN + 5);
    assert!(matches!(read, Err(StoreError::Invalid(_))), "{read:?}");
    assert_eq!(messages, 1);
}

#[test]
fn a_chunk_without_its_own_file_is_sent() {
    let rig = LocalRig::new();
    let small = rig.put(2, 1000);
    let (read, messages) = rig.read(2, 1000, 0, 1000);
    assert_eq!((read.unwrap() == small, messages), (true, 1));
    // The first request finds out that there is no file, and the refusal is remembered.
    for messages in [2, 1, 1] {
        let missing = Err(StoreError::Missing(free(3)));
        assert_eq!(rig.read(3, LEN, 0, LEN), (missing, messages));
    }
    let data = vec![7; LEN as usize];
    let slices = [IoSlice::new(&data)];
    // Not sealed yet.
    rig.store
        .append(&free(5), &form(&[2 * LEN]), 0, &slices)
        .unwrap();
    let (read, messages) = rig.read(5, 2 * LEN, 0, LEN);
    assert_eq!((read.unwrap() == data, messages), (true, 2));
    assert!(!rig.servers.has_same_host_files());
}

#[test]
fn a_file_descriptor_outlives_chunk_and_server_and_closes_when_idle() {
    let mut rig = LocalRig::new();
    let data = rig.put(1, LEN);
    let (read, _) = rig.read(1, LEN, 0, LEN);
    assert!(read.unwrap() == data);
    rig.store.delete(&[free(1)]).unwrap();
    rig.server.take().unwrap().abort();
    let (read, messages) = rig.read(1, LEN, 100, LEN);
    assert_eq!((read.unwrap() == data[100..], messages), (true, 0));
    rig.servers.tidy();
    assert!(rig.servers.has_same_host_files());
    rig.servers.age_same_host();
    rig.servers.tidy();
    assert!(!rig.servers.has_same_host_files());
}

/// Damage is found in this process and reported as the server reports it.
#[test]
fn damage_is_found_and_named() {
    let rig = LocalRig::new();
    let data = rig.put(1, LEN);
    let (read, _) = rig.read(1, LEN, 0, 100_000);
    assert!(read.unwrap() == data[..100_000]);
    let file = OpenOptions::new().write(true).open(rig.file(1)).unwrap();
    let size = file.metadata().unwrap().len();
    file.write_all_at(&[!data[LEN as usize - 1]], size - 1)
        .unwrap();
    let (read, messages) = rig.read(1, LEN, LEN - 10, LEN);
    match read {
        Err(StoreError::Damaged { name, detail }) => {
            assert_eq!(name, free(1));
            assert!(detail.contains("block 15"), "{detail}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(messages, 1);
    // A truncated file is not accepted at all; the server reports why.
    let rig = LocalRig::new();
    rig.put(1, LEN);
    let file = OpenOptions::new().write(true).open(rig.file(1)).unwrap();
    file.set_len(100_000).unwrap();
    let (read, _) = rig.read(1, LEN, 0, LEN);
    assert!(matches!(read, Err(StoreError::Damaged { .. })), "{read:?}");
    assert!(!rig.servers.has_same_host_files());
}

#[test]
fn only_cached_files_in_memory_are_shown_at_once() {
    let rig = LocalRig::new();
    let data = rig.put(1, LEN);
    assert_eq!(rig.shown(1, 0, 10), None);
    let (read, _) = rig.read(1, LEN, 0, 100_000);
    assert!(read.unwrap() == data[..100_000]);
    // Blocks that were summed just now, others, and both; the last one is short.
    for (from, to) in [
        (0, 10),
        (65_530, 65_550),
        (99_000, 200_000),
        (0, LEN),
        (LEN - 1, LEN),
    ] {
        let wanted = &data[from as usize..to as usize];
        assert!(
            rig.shown(1, from, to).as_deref() == Some(wanted),
            "{from}..{to}"
        );
    }
    assert_eq!(rig.shown(1, LEN - 1, LEN + 1), None);
    assert_eq!(rig.shown(2, 0, 10), None);
}

/// Whether the page of a byte is in memory. A read without waiting (`RWF_NOWAIT`) would show it as well, but makes
/// the kernel load the page.
fn is_in_memory(file: &std::fs::File, at: u64) -> bool {
    const PAGE: u64 = 4096;
    let map = memmap2::MmapOptions::new()
        .offset(at / PAGE * PAGE)
        .len(1)
        .map_raw_read_only(file)
        .unwrap();
    let mut there = [0];
    // SAFETY: the mapping has the one queried byte, and `there` receives the state of its page.
    let asked = unsafe { libc::mincore(map.as_ptr().cast_mut().cast(), 1, there.as_mut_ptr()) };
    assert_eq!(asked, 0);
    there[0] & 1 == 1
}

#[test]
fn neither_uncached_pages_nor_damaged_files_are_shown_at_once() {
    let rig = LocalRig::new();
    let data = rig.put(1, LEN);
    let path = rig.file(1);
    let (read, _) = rig.read(1, LEN, 0, 100_000);
    assert!(read.unwrap() == data[..100_000]);
    // The kernel drops pages that are not mapped, unless the filesystem has no other place for them.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    file.sync_all().unwrap();
    let size = file.metadata().unwrap().len();
    nix::fcntl::posix_fadvise(
        &file,
        (size - (LEN / 2)) as i64,
        0,
        nix::fcntl::PosixFadviseAdvice::POSIX_FADV_DONTNEED,
    )
    .unwrap();
    let gone = !is_in_memory(&file, size - 1);
    let shown = rig.shown(1, LEN - 10, LEN);
    assert_eq!(shown.is_none(), gone);
    // A blocking read loads it.
    let (read, messages) = rig.read(1, LEN, LEN - 10, LEN);
    assert_eq!(
        (read.unwrap() == data[LEN as usize - 10..], messages),
        (true, 0)
    );
    // A changed byte is found, also by a read that does not wait; from then on the server is asked.
    file.write_all_at(&[!data[400_000]], size - LEN + 400_000)
        .unwrap();
    assert_eq!(rig.shown(1, 399_000, 401_000), None);
    let (read, messages) = rig.read(1, LEN, 399_000, 401_000);
    assert!(matches!(read, Err(StoreError::Damaged { .. })), "{read:?}");
    assert_eq!(messages, 1);
    // Truncation is an error, not a signal.
    let rig = LocalRig::new();
    let data = rig.put(1, LEN);
    let (read, _) = rig.read(1, LEN, 0, LEN);
    assert!(read.unwrap() == data);
    let file = OpenOptions::new().write(true).open(rig.file(1)).unwrap();
    file.set_len(file.metadata().unwrap().len() - 300_000)
        .unwrap();
    assert_eq!(rig.shown(1, LEN - 10, LEN), None);
    assert!(rig.shown(1, 0, 10).as_deref() == Some(&data[..10]));
    // Also inside a page, whose rest is zeros: a kernel that keeps the shown pages never gets those.
    let rig = LocalRig::new();
    let data = rig.put(1, LEN);
    let (read, _) = rig.read(1, LEN, 0, LEN);
    assert!(read.unwrap() == data);
    let file = OpenOptions::new().write(true).open(rig.file(1)).unwrap();
    file.set_len(file.metadata().unwrap().len() - 10).unwrap();
    let shown = rig.shown_to(1, LEN - 100, LEN - 10, true);
    assert!(shown.as_deref() == Some(&data[LEN as usize - 100..LEN as usize - 10]));
    assert_eq!(rig.shown_to(1, LEN - 100, LEN, true), None);
}

#[test]
fn sequential_shows_check_ahead() {
    let rig = LocalRig::new();
    let data = rig.put(1, LEN);
    let path = rig.file(1);
    let size = path.metadata().unwrap().len();
    let (read, _) = rig.read(1, LEN, 0, BLOCK);
    assert!(read.unwrap() == data[..BLOCK as usize]);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let spoil = |at: u64| {
        let byte = [!data[at as usize]];
        file.write_all_at(&byte, size - LEN + at).unwrap();
    };
    // Damage after the block that is read does not affect that read.
    spoil(4 * BLOCK + 7);
    let second = BLOCK..BLOCK + 10;
    assert!(
        rig.shown(1, second.start, second.end).as_deref()
            == Some(&data[BLOCK as usize..BLOCK as usize + 10])
    );
    for block in 2..4 {
        let (from, to) = (block * BLOCK, (block + 1) * BLOCK);
        assert!(
            rig.shown(1, from, to).as_deref() == Some(&data[from as usize..to as usize]),
            "{block}"
        );
    }
    assert_eq!(rig.shown(1, 4 * BLOCK, 4 * BLOCK + 1), None);
}

#[test]
fn the_number_of_open_files_is_bounded() {
    let rig = LocalRig::new();
    let len = 70_000;
    for id in 0..300 {
        rig.put(id, len);
        let (read, messages) = rig.read(id, len, 0, len);
        assert_eq!((read.unwrap().len() as u64, messages), (len, 1));
    }
    let cached = (0..300).filter(|&id| rig.servers.is_same_host(SERVER, &free(id)));
    let cached: Vec<_> = cached.collect();
    assert!(cached.len() <= 256, "{}", cached.len());
    assert_eq!(cached.last(), Some(&299));
}

#[test]
fn files_of_more_chunks_than_a_message_carries_are_requested_in_several() {
    let rig = LocalRig::new();
    let (count, len) = (MAX_FILES as u64 + 1, 70_000);
    let all: Vec<(ChunkName, Vec<u8>)> =
        (0..count).map(|id| (free(id), rig.put(id, len))).collect();
    let (form, slab) = (form(&[len]), Hyperslab::all(&[len]));
    for messages in [2, 0] {
        let before = rig.servers.counters().snapshot().messages;
        let mut outs = vec![vec![0; len as usize]; all.len()];
        let mut pieces: Vec<_> = all
            .iter()
            .zip(&mut outs)
            .map(|((name, _), out)| ReadPiece {
                server: SERVER,
                name,
                form: &form,
                slab: &slab,
                out,
                found: true,
            })
            .collect();
        rig.servers.read(&mut pieces).unwrap();
        assert!(all.iter().zip(&outs).all(|((_, data), out)| data == out));
        assert_eq!(
            rig.servers.counters().snapshot().messages - before,
            messages
        );
    }
}

#[test]
fn batches_are_read_from_files() {
    let rig = LocalRig::new();
    let data = rig.put(1, LEN);
    let every = Batch::repeated(
        BatchPlace::at(3).every(1000),
        BatchPlace::at(0).every(500),
        1000,
        Pattern::Data(500),
    );
    let plan = Plan::new(&[every], 1).unwrap();
    let (name, form) = (free(1), form(&[LEN]));
    let full = Hyperslab::all(&form.shape);
    for round in 0..2 {
        let before = rig.servers.counters().snapshot();
        let mut out = vec![0; 500_000];
        let part = BatchPart {
            plan: &plan,
            packed: 0..plan.bytes(),
            cells: &[LEN],
            base: 0,
        };
        let mut pieces = vec![BatchPiece {
            server: SERVER,
            name: &name,
            form: &form,
            want: &full,
            slab: &full,
            stage: 0,
            found: true,
        }];
        read_batch(&rig.servers, part, &mut pieces, &mut out);
        let after = rig.servers.counters().snapshot();
        assert!(pieces[0].found);
        assert_eq!(after.messages - before.messages, 1 - round);
        for (at, piece) in out.chunks(500).enumerate() {
            assert!(piece == &data[3 + 1000 * at..][..500], "piece {at}");
        }
    }
}

/// Together with a chunk that has no file to hand out, all pieces are sent: large ones from their files, others
/// copied, in request order.
#[test]
fn one_reply_has_parts_of_files_and_copies() {
    let rig = LocalRig::new();
    let (one, two, small) = (rig.put(1, LEN), rig.put(2, LEN), rig.put(3, 1000));
    let cells = noise(300_000, 77);
    let rows = form(&[3, 100_000]);
    let full = Hyperslab::from_region(&Region::new(&[0, 0], &[3, 100_000]));
    let slices = [IoSlice::new(&cells)];
    rig.store.write(&grid(0), &rows, &full, &slices).unwrap();
    let slab = |from, to| Hyperslab::from_region(&Region::new(&[from], &[to - from]));
    let (long, short) = (form(&[LEN]), form(&[1000]));
    // The pieces, and the expected bytes of each.
    let all = [
        (free(3), &short, slab(10, 900), Some(&small[10..900])),
        (free(1), &long, slab(0, LEN), Some(&one[..])),
        (grid(0), &rows, full, Some(&cells[..])),
        (free(9), &long, slab(0, LEN), None),
        (free(2), &long, slab(7, 700_000), Some(&two[7..700_000])),
        (free(2), &long, slab(3, 9), Some(&two[3..9])),
    ];
    let read = || {
        let mut outs: Vec<Vec<u8>> = (all.iter())
            .map(|(_, _, slab, _)| vec![0xEE; slab.volume() as usize])
            .collect();
        let mut pieces: Vec<_> = (all.iter().zip(&mut outs))
            .map(|((name, form, slab, _), out)| ReadPiece {
                server: SERVER,
                name,
                form,
                slab,
                out,
                found: true,
            })
            .collect();
        let before = rig.servers.counters().snapshot().messages;
        let read = rig.servers.read(&mut pieces);
        let messages = rig.servers.counters().snapshot().messages - before;
        let found: Vec<bool> = pieces.iter().map(|piece| piece.found).collect();
        (read, messages, found, outs)
    };
    let (done, _, found, outs) = read();
    done.unwrap();
    for (((_, _, _, wanted), found), out) in all.iter().zip(found).zip(outs) {
        assert_eq!(found, wanted.is_some());
        if let Some(wanted) = wanted {
            assert!(out == *wanted);
        }
    }
    assert!(!rig.servers.has_same_host_files());
    // A damaged one is named, and the connection stays usable.
    let file = OpenOptions::new().write(true).open(rig.file(2)).unwrap();
    let size = file.metadata().unwrap().len();
    let at = size - LEN + 600_000;
    file.write_all_at(&[!two[600_000]], at).unwrap();
    rig.store.verify(&free(2)).unwrap_err();
    let (done, messages, ..) = read();
    let Err((4, StoreError::Damaged { name, .. })) = done else {
        panic!("{done:?}");
    };
    assert_eq!((name, messages), (free(2), 1));
}

//! Tests of files handed out for new chunks.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

use super::*;
use crate::checksum::sums_of_blocks;
use crate::store::SUMMED;
use crate::wire::messages::FilledItem;
use crate::wire::{ServeOptions, Until, WireResult};

const LEN: u64 = 100_000;

/// A data server over a store in a directory.
pub(super) struct House {
    pub(super) dir: tempfile::TempDir,
    pub(super) store: Arc<LocalStore>,
    server: DataServer,
    pub(super) pool: Pool,
}

pub(super) fn house(transfer: Duration) -> House {
    let dir = tempfile::tempdir().unwrap();
    let fast = LocalOptions {
        fsync: false,
        ..LocalOptions::default()
    };
    let store = Arc::new(LocalStore::open(&dir.path().join("store"), fast).unwrap());
    let addr = Addr::Unix(dir.path().join("socket"));
    let listener = Listener::bind(&addr, None).unwrap();
    let options = ServeOptions {
        transfer,
        ..ServeOptions::default()
    };
    let server = DataServer::start_with(store.clone(), listener, None, options).unwrap();
    House {
        dir,
        store,
        server,
        pool: Pool::new(addr, None, Duration::from_secs(10)),
    }
}

pub(super) fn long() -> House {
    house(ServeOptions::default().transfer)
}

fn item(id: u64) -> BlankItem {
    BlankItem {
        name: free(id),
        form: form(&[LEN]),
    }
}

/// A FILLED request: with the checksums of [`bytes`] for odd ids, without for even ones.
fn filled(names: &[ChunkName]) -> Vec<u8> {
    let item = |name: &ChunkName| {
        let sums = match name {
            ChunkName::Free(id) if id.0 % 2 == 1 => {
                sums_of_blocks(&[IoSlice::new(&bytes(id.0))], SUMMED)
            }
            _ => Vec::new(),
        };
        FilledItem {
            name: name.clone(),
            sums,
        }
    };
    postcard::to_allocvec(&names.iter().map(item).collect::<Vec<_>>()).unwrap()
}

fn bytes(id: u64) -> Vec<u8> {
    (0..LEN).map(|at| (at * (id + 1) % 253) as u8).collect()
}

impl House {
    /// Requests files, lets `second` fill them, and sends the request that `second` returns.
    fn exchange<T: DeserializeOwned>(
        &self,
        items: &[BlankItem],
        second: &mut dyn FnMut(Answer<Blanks>, Vec<OwnedFd>) -> (u16, Vec<u8>),
    ) -> WireResult<T> {
        let asked = postcard::to_allocvec(items).unwrap();
        let until = Until::from(Instant::now() + Duration::from_secs(10));
        let mut answer = None;
        let done = self.pool.exchange(
            kind::BLANKS,
            &asked,
            until,
            &mut |control, files| Ok(second(postcard::from_bytes(control).unwrap(), files)),
            &mut |control, _| {
                answer = Some(postcard::from_bytes(control).unwrap());
                Ok(())
            },
        )?;
        assert!(done);
        Ok(answer.unwrap())
    }

    /// Requests files for `ids`, fills them, and sends FILLED with the names `reported`.
    fn fill(&self, ids: &[u64], reported: &[ChunkName]) -> Outcome {
        let items: Vec<_> = ids.iter().map(|&id| item(id)).collect();
        let outcome = self.exchange(&items, &mut |blanks, files| {
            let blanks = blanks.unwrap();
            assert_eq!((blanks.len(), files.len()), (ids.len(), ids.len()));
            for ((id, places), file) in ids.iter().zip(blanks).zip(files) {
                let (data, file) = (bytes(*id), File::from(file));
                assert_eq!(places.len(), 1);
                file.write_all_at(&data, places[0].at).unwrap();
                assert!(file.read_at(&mut [0], 0).is_err(), "it can be read");
            }
            (kind::FILLED, filled(reported))
        });
        outcome.unwrap()
    }

    pub(super) fn connections(&self) -> usize {
        self.server.connections()
    }

    /// The number of files of large chunks, finished or not.
    pub(super) fn files(&self) -> usize {
        fn below(dir: &Path) -> usize {
            match dir.read_dir() {
                Ok(entries) => entries.map(|entry| below(&entry.unwrap().path())).sum(),
                Err(_) => usize::from(dir.is_file()),
            }
        }
        below(&self.dir.path().join("store/free"))
    }

    fn has(&self, id: u64) -> bool {
        let mut out = vec![0; LEN as usize];
        let slab = Hyperslab::all(&form(&[LEN]).shape);
        match self.store.read(&free(id), &form(&[LEN]), &slab, &mut out) {
            Ok(()) => {
                assert!(out == bytes(id));
                true
            }
            Err(StoreError::Missing(_)) => false,
            Err(e) => panic!("{e}"),
        }
    }
}

fn is_refused(outcome: &Outcome) -> bool {
    outcome.done == 0 && matches!(outcome.failed, Some(StoreError::Invalid(_)))
}

#[test]
fn filled_files_become_chunks() {
    let house = long();
    let outcome = house.fill(&[1, 2], &[free(1), free(2)]);
    assert_eq!((outcome.done, outcome.failed), (2, None));
    assert!(house.has(1) && house.has(2));
    // For chunks that exist, no files are handed out: the client sends the bytes, and the server compares them.
    let none: Outcome = house
        .exchange(&[item(3), item(2)], &mut |blanks, files| {
            assert_eq!((blanks, files.len()), (Ok(Vec::new()), 0));
            (kind::FILLED, filled(&[free(3)]))
        })
        .unwrap();
    assert!(is_refused(&none));
    assert_eq!(house.files(), 2);
}

/// The client's checksums are stored unverified; a read finds wrong ones.
#[test]
fn wrong_sums_are_found_when_the_chunk_is_read() {
    let house = long();
    let sums = sums_of_blocks(&[IoSlice::new(&bytes(1))], SUMMED);
    assert_eq!(sums.len(), 2);
    let fill = |sums: &[u32]| -> Outcome {
        let sent = FilledItem {
            name: free(1),
            sums: sums.to_vec(),
        };
        let outcome = house.exchange(&[item(1)], &mut |blanks, mut files| {
            let at = blanks.unwrap()[0][0].at;
            let file = File::from(files.remove(0));
            file.write_all_at(&bytes(1), at).unwrap();
            (kind::FILLED, postcard::to_allocvec(&vec![&sent]).unwrap())
        });
        outcome.unwrap()
    };
    for few in [&sums[..1], &[sums[0], sums[1], 0]] {
        let outcome = fill(few);
        assert!(is_refused(&outcome), "{outcome:?}");
        assert_eq!(house.files(), 0);
    }
    assert_eq!(fill(&[sums[0], sums[1] ^ 1]).failed, None);
    let read = |from: u64, len: u64| {
        let slab = Hyperslab::from_region(&Region::new(&[from], &[len]));
        let mut out = vec![0; len as usize];
        house.store.read(&free(1), &form(&[LEN]), &slab, &mut out)
    };
    assert_eq!(read(0, 65_536), Ok(()));
    assert!(matches!(read(65_536, 1), Err(StoreError::Damaged { .. })));
}

#[test]
fn files_are_returned_by_the_next_request_or_deleted() {
    let house = long();
    for reported in [
        &[free(1)][..],
        &[free(2), free(1)],
        &[free(1), free(2), free(3)],
    ] {
        assert!(is_refused(&house.fill(&[1, 2], reported)));
        assert_eq!(house.files(), 0);
    }
    let outcome = house.fill(&[1, 2], &[]);
    assert_eq!((outcome.done, outcome.failed), (0, None));
    assert_eq!(house.files(), 0);
    // Another request in between.
    let _: SpaceAnswer = house
        .exchange(&[item(1)], &mut |_, _| {
            assert_eq!(house.files(), 1);
            (kind::SPACE, postcard::to_allocvec(&()).unwrap())
        })
        .unwrap();
    assert_eq!(house.files(), 0);
    let late = filled(&[free(1)]);
    let reply = house
        .pool
        .call(kind::FILLED, &late, &[], &mut Vec::new())
        .unwrap();
    assert!(is_refused(&postcard::from_bytes(&reply).unwrap()));
    // A second request for the same files, which stay unfilled; then the connection is closed.
    let twice: Answer<Blanks> = house
        .exchange(&[item(1)], &mut |_, _| {
            assert_eq!(house.files(), 1);
            (kind::BLANKS, postcard::to_allocvec(&vec![item(1)]).unwrap())
        })
        .unwrap();
    assert_eq!(twice.unwrap().len(), 1);
    assert_eq!(house.files(), 1);
    assert!(!house.has(1));
    house.pool.close();
    let House { dir, server, .. } = house;
    server.shutdown();
    let left = dir.path().join("store/free/000/000").read_dir().unwrap();
    assert_eq!(left.count(), 0);
}

#[test]
fn a_client_that_stops_in_the_middle_is_not_waited_for() {
    let house = house(Duration::from_millis(200));
    let mut late = Vec::new();
    let outcome: Outcome = house
        .exchange(&[item(1)], &mut |blanks, mut files| {
            let file = File::from(files.remove(0));
            let at = blanks.unwrap()[0][0].at;
            file.write_all_at(&bytes(1)[..50_000], at).unwrap();
            let end = Instant::now() + Duration::from_secs(10);
            while file.metadata().unwrap().nlink() > 0 && Instant::now() < end {
                std::thread::yield_now();
            }
            assert_eq!(file.metadata().unwrap().len(), 0, "it takes no room");
            // Meanwhile another client puts the chunk.
            let data = bytes(1);
            let slices = [IoSlice::new(&data)];
            house.store.put(&free(1), &form(&[LEN]), &slices).unwrap();
            // The stopped client resumes.
            file.write_all_at(&[0xEE; LEN as usize], at).unwrap();
            late.push(file);
            (kind::FILLED, filled(&[free(1)]))
        })
        .unwrap();
    assert!(is_refused(&outcome));
    assert!(house.has(1));
    assert_eq!(house.files(), 1);
}

#[test]
fn wrong_requests_for_files_are_refused() {
    let house = long();
    let ask = |items: &[BlankItem]| -> Answer<Blanks> {
        let asked = postcard::to_allocvec(items).unwrap();
        let reply = house
            .pool
            .call(kind::BLANKS, &asked, &[], &mut Vec::new())
            .unwrap();
        postcard::from_bytes(&reply).unwrap()
    };
    let of = |name: ChunkName, shape: &[u64]| BlankItem {
        name,
        form: form(shape),
    };
    let many: Vec<_> = (0..65).map(item).collect();
    for items in [
        &many[..],
        &[of(free(1), &[1 << 40])],
        &[of(free(1), &[40 << 20]), of(free(2), &[40 << 20])],
        &[of(grid(&[1]), &[LEN])],
        &[of(free(1), &[])],
    ] {
        let answer = ask(items);
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    }
    assert_eq!(ask(&[]), Ok(Vec::new()));
    assert_eq!(ask(&[of(free(1), &[100])]), Ok(Vec::new()));
    let broken = house
        .pool
        .call(kind::BLANKS, b"\xff\xff", &[], &mut Vec::new())
        .unwrap();
    let broken: Answer<Blanks> = postcard::from_bytes(&broken).unwrap();
    assert!(matches!(broken, Err(StoreError::Protocol(_))));
    assert_eq!(house.files(), 0);
    // A store without files.
    let rig = rig();
    let (none, _): (Answer<Blanks>, _) = rig.ask(kind::BLANKS, &vec![item(1)], b"");
    assert_eq!(none, Ok(Vec::new()));
    let stray: (Answer<Blanks>, _) = rig.ask(kind::BLANKS, &vec![item(1)], b"x");
    assert!(matches!(stray.0, Err(StoreError::Protocol(_))));
}

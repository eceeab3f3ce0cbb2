//! Tests of chunk files handed out to clients on the same host for reading.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::*;
use crate::store::{SameHostChunk, SameHostFile};
use crate::wire::Until;
use crate::wire::messages::{Handed, SameHostAsk, SameHostFiles};

const LEN: u64 = 100_000;

fn ask(pool: &Pool, names: &[ChunkName]) -> (Answer<SameHostFiles>, Vec<File>) {
    let asked = SameHostAsk {
        names: names.to_vec(),
        mapped: false,
    };
    let asked = postcard::to_allocvec(&asked).unwrap();
    let until = Until::from(Instant::now() + Duration::from_secs(10));
    let (control, files) = (pool.call_for_files(kind::SAME_HOST_FILES, &asked, until))
        .unwrap()
        .unwrap();
    (
        postcard::from_bytes(&control).unwrap(),
        files.into_iter().map(File::from).collect(),
    )
}

fn mark_of(handed: Handed) -> u64 {
    match handed {
        Handed::File(mark) => mark,
        other => panic!("{other:?}"),
    }
}

#[test]
fn files_are_handed_out_for_chunks_that_have_one() {
    let dir = tempfile::tempdir().unwrap();
    let store = LocalStore::open(&dir.path().join("store"), LocalOptions::default()).unwrap();
    let store = Arc::new(store);
    let addr = Addr::Unix(dir.path().join("socket"));
    let listener = Listener::bind(&addr, None).unwrap();
    let _server = DataServer::start(store.clone(), listener).unwrap();
    let pool = Pool::new(addr, None, Duration::from_secs(10));
    let data: Vec<u8> = (0..LEN).map(|at| (at % 253) as u8).collect();
    let slices = [IoSlice::new(&data)];
    store.put(&free(1), &form(&[LEN]), &slices).unwrap();
    let small = [IoSlice::new(&data[..10])];
    store.put(&free(2), &form(&[10]), &small).unwrap();
    store.put(&free(3), &form(&[LEN]), &slices).unwrap();
    let all = Hyperslab::all(&form(&[LEN]).shape);
    store
        .write(&grid(&[1]), &form(&[LEN]), &all, &slices)
        .unwrap();
    store.append(&free(4), &form(&[LEN]), 0, &slices).unwrap();

    let names = [free(1), free(2), grid(&[1]), free(3), free(4), free(5)];
    let (answer, files) = ask(&pool, &names);
    let marks = answer.unwrap().chunks;
    let there: Vec<bool> = marks.iter().map(|handed| *handed != Handed::No).collect();
    assert_eq!(there, [true, false, false, true, false, false]);
    assert_eq!(files.len(), 2);
    for file in &files {
        assert!(file.write_at(&[0], 0).is_err(), "it can be written");
    }
    // A deleted chunk, unlinked from its directory, stays readable through the descriptor.
    store.delete(&[free(1), free(3)]).unwrap();
    let mark = mark_of(marks[0]);
    let take = |file: &File, name: &ChunkName, mark: u64| {
        let file = file.try_clone().unwrap();
        SameHostChunk::new(SameHostFile { file, mark }, name)
    };
    let chunk = take(&files[0], &free(1), mark).expect("a chunk");
    let mut out = vec![0; LEN as usize];
    chunk.read(&form(&[LEN]), &all, &mut out).unwrap();
    assert!(out == data);
    assert!(take(&files[0], &free(3), mark).is_none(), "another chunk");
    assert_eq!(ask(&pool, &[free(1)]).0.unwrap().chunks, [Handed::No]);

    // Written but not synced: its checksum page names the writing process, and is valid only with that process's mark.
    store.append(&free(6), &form(&[LEN]), 0, &slices).unwrap();
    store.sync(&[free(6)]).unwrap();
    store.seal(&free(6), &form(&[LEN])).unwrap();
    let (answer, files) = ask(&pool, &[free(6)]);
    let mark = mark_of(answer.unwrap().chunks[0]);
    let chunk = take(&files[0], &free(6), mark).expect("a chunk");
    chunk.read(&form(&[LEN]), &all, &mut out).unwrap();
    assert!(out == data);
    assert!(
        take(&files[0], &free(6), mark ^ 1).is_none(),
        "the page of another process"
    );

    let many: Vec<_> = (0..65).map(free).collect();
    assert!(matches!(ask(&pool, &many).0, Err(StoreError::Invalid(_))));
    let deep = ChunkName::Grid {
        object: ObjectId(1),
        generation: 1,
        at: Coords::from_elem(0, 40),
    };
    assert!(matches!(ask(&pool, &[deep]).0, Err(StoreError::Invalid(_))));
    let reply = pool
        .call(kind::SAME_HOST_FILES, b"\xff\xff", &[], &mut Vec::new())
        .unwrap();
    let broken: Answer<SameHostFiles> = postcard::from_bytes(&reply).unwrap();
    assert!(matches!(broken, Err(StoreError::Protocol(_))));
}

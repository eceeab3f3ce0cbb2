//! Tests of large chunks that are written to files handed out by servers, or else sent.

use std::sync::atomic::Ordering::Relaxed;

use super::*;

const LEN: usize = (3 << 20) + 5;

fn put(rig: &Rig, ids: &[u64], data: &[u8]) -> Result<()> {
    let form = form(&[LEN as u64]);
    let (a, b) = data.split_at(LEN / 3);
    let slices = [IoSlice::new(a), IoSlice::new(b)];
    let names: Vec<_> = ids.iter().map(|&id| free(id)).collect();
    let pieces: Vec<_> = names
        .iter()
        .zip(ALL.iter().cycle())
        .map(|(name, &server)| WritePiece {
            server,
            name,
            form: &form,
            kind: WriteKind::Put,
            data: &slices,
        })
        .collect();
    rig.servers.write(&pieces).map(drop)
}

fn is_there(rig: &Rig, ids: &[u64], data: &[u8]) {
    let form = form(&[LEN as u64]);
    let slab = Hyperslab::all(&form.shape);
    for (&id, store) in ids.iter().zip(rig.stores.iter().cycle()) {
        let mut back = vec![0; LEN];
        store.read(&free(id), &form, &slab, &mut back).unwrap();
        assert!(back == data, "{id}");
    }
}

fn with_blanks(rig: &Rig) {
    for store in &rig.stores {
        *store.blanks_in.lock() = Some(tempfile::tempdir().unwrap());
    }
}

fn filled(rig: &Rig) -> Vec<usize> {
    let filled = rig.stores.iter().map(|store| store.filled.load(Relaxed));
    filled.collect()
}

fn left(rig: &Rig) -> usize {
    let dirs = rig.stores.iter().filter_map(|store| {
        let dir = store.blanks_in.lock();
        Some(dir.as_ref()?.path().read_dir().unwrap().count())
    });
    dirs.sum()
}

#[test]
fn large_chunks_are_written_to_files() {
    let rig = rig();
    let data = noise(LEN, 1);
    put(&rig, &[1, 2, 3, 4], &data).unwrap();
    is_there(&rig, &[1, 2, 3, 4], &data);
    assert_eq!(filled(&rig), [0; 4]);
    with_blanks(&rig);
    put(&rig, &[11, 12, 13, 14, 15, 16, 17, 18], &data).unwrap();
    is_there(&rig, &[11, 12, 13, 14, 15, 16, 17, 18], &data);
    // Stores of this process take them directly.
    assert_eq!(filled(&rig), [0, 0, 2, 2]);
    let small = form(&[1000]);
    let slices = [IoSlice::new(&data[..1000])];
    let name = free(21);
    let piece = WritePiece {
        server: ServerId(3),
        name: &name,
        form: &small,
        kind: WriteKind::Put,
        data: &slices,
    };
    rig.servers.write(&[piece]).unwrap();
    assert_eq!(filled(&rig), [0, 0, 2, 2]);
    drop(rig.running);
}

#[test]
fn a_chunk_whose_file_is_refused_is_sent() {
    let rig = rig();
    let data = noise(LEN, 2);
    with_blanks(&rig);
    rig.stores[2].refuses.store(true, Relaxed);
    put(&rig, &[1, 2, 3, 4], &data).unwrap();
    is_there(&rig, &[1, 2, 3, 4], &data);
    // The server writes sent chunks to a file itself.
    assert_eq!(filled(&rig), [0, 0, 2, 1]);
    assert_eq!(left(&rig), 0);
    // An error with a chunk is reported by the request that sends it.
    rig.stores[3].trap.store(2, Relaxed);
    let name = free(2);
    let form = form(&[LEN as u64]);
    let slices = [IoSlice::new(&data)];
    let piece = WritePiece {
        server: ServerId(4),
        name: &name,
        form: &form,
        kind: WriteKind::Put,
        data: &slices,
    };
    assert_eq!(rig.servers.write(&[piece]), Err(StoreError::NoSpace));
    assert_eq!(filled(&rig), [0, 0, 2, 3]);
    assert_eq!(left(&rig), 0);
    drop(rig.running);
}

//! Replies that a server sends while it reads the chunks, since the bytes exceed its buffer.

use super::*;

/// Name, form and slab of a piece, and its expected bytes, or none if there is no such chunk.
type Wanted = (ChunkName, ChunkForm, Hyperslab, Option<Vec<u8>>);

const SERVER: ServerId = ALL[2];

fn slab(offset: &[u64], shape: &[u64]) -> Hyperslab {
    Hyperslab::from_region(&Region::new(offset, shape))
}

/// Writes a grid chunk, and returns a piece that reads a part of it.
fn written(rig: &Rig, at: u64, shape: &[u64], wanted: Hyperslab) -> Wanted {
    let (name, form) = (grid(at), form(shape));
    let data = noise(form.volume().unwrap() as usize, at as u8);
    let full = Hyperslab::all(shape);
    let piece = WritePiece {
        server: SERVER,
        name: &name,
        form: &form,
        kind: WriteKind::Write(&full),
        data: &[IoSlice::new(&data)],
    };
    rig.servers.write(&[piece]).unwrap();
    let mut cells = vec![0; wanted.volume() as usize];
    slabfs_model::gather(&data, shape, &wanted, &mut cells);
    (name, form, wanted, Some(cells))
}

/// Puts an immutable chunk; an id can be set as a trap for reads.
fn put(rig: &Rig, id: u64, len: u64) -> Wanted {
    let (name, form, full) = (free(id), form(&[len]), Hyperslab::all(&[len]));
    let data = noise(len as usize, 5);
    let piece = WritePiece {
        server: SERVER,
        name: &name,
        form: &form,
        kind: WriteKind::Put,
        data: &[IoSlice::new(&data)],
    };
    rig.servers.write(&[piece]).unwrap();
    (name, form, full, Some(data))
}

/// Reads all in one message.
fn read(rig: &Rig, all: &[Wanted]) -> Result<(), (usize, StoreError)> {
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
    let done = rig.servers.read(&mut pieces);
    assert_eq!(rig.servers.counters().snapshot().messages - before, 1);
    done?;
    let found: Vec<bool> = pieces.iter().map(|piece| piece.found).collect();
    for (at, ((_, _, _, wanted), (out, found))) in
        all.iter().zip(outs.iter().zip(found)).enumerate()
    {
        assert_eq!(found, wanted.is_some(), "piece {at}");
        assert!(wanted.as_ref().is_none_or(|wanted| wanted == out), "{at}");
    }
    Ok(())
}

#[test]
fn a_full_message_has_pieces_of_all_sizes() {
    let rig = rig();
    let strided = Hyperslab {
        axes: [Axis::every(0, 2, 1000), Axis::every(1, 3, 7000)]
            .into_iter()
            .collect(),
    };
    let mut all = vec![
        written(&rig, 0, &[2000, 21_000], strided),
        written(&rig, 1, &[3, 100], slab(&[1, 5], &[2, 90])),
        (grid(2), form(&[3, 100]), slab(&[0, 0], &[3, 100]), None),
        written(&rig, 3, &[40, 1_000_003], slab(&[2, 3], &[31, 1_000_000])),
        written(&rig, 4, &[1, 300_000], slab(&[0, 7], &[1, 262_144])),
    ];
    let there = all.iter().filter_map(|(.., wanted)| wanted.as_ref());
    let left = MAX_DATA - there.map(Vec::len).sum::<usize>() - 300;
    all.push(written(
        &rig,
        5,
        &[1, left as u64],
        slab(&[0, 0], &[1, left as u64]),
    ));
    read(&rig, &all).unwrap();
    assert_eq!(rig.running[0].connections(), 1);
}

/// The reply names the failed piece, and the connection stays usable.
#[test]
fn an_error_in_the_middle_of_a_reply_names_its_piece() {
    let rig = rig();
    for (trap, len) in [(3, 2 << 20), (3, 9 << 20), (4, 100), (4, 9 << 20)] {
        let all = [
            written(&rig, 0, &[2, 1 << 20], slab(&[0, 9], &[2, 1 << 19])),
            put(&rig, trap, len),
            written(&rig, 1, &[2, 1 << 20], Hyperslab::all(&[2, 1 << 20])),
        ];
        rig.stores[2].trap.store(trap, Relaxed);
        let (at, error) = read(&rig, &all).unwrap_err();
        assert_eq!(at, 1);
        match (trap, error) {
            (3, StoreError::Damaged { name, .. }) | (4, StoreError::Missing(name)) => {
                assert_eq!(name, free(trap));
            }
            (_, error) => panic!("{error}"),
        }
        rig.stores[2].trap.store(0, Relaxed);
        read(&rig, &all).unwrap();
        assert_eq!(rig.running[0].connections(), 1);
    }
}

/// An error found before any byte of a chunk is read is reported at the front of the reply, also for a request of
/// that chunk alone.
#[test]
fn an_error_before_the_first_byte_is_reported_at_the_front() {
    let rig = rig();
    let all = [
        written(&rig, 0, &[2, 1 << 20], Hyperslab::all(&[2, 1 << 20])),
        written(&rig, 105, &[2, 1 << 20], Hyperslab::all(&[2, 1 << 20])),
    ];
    rig.stores[2].trap.store(105, Relaxed);
    for all in [&all[..], &all[1..]] {
        let Err((at, StoreError::Damaged { name, .. })) = read(&rig, all) else {
            panic!("it was read");
        };
        assert_eq!((at, name), (all.len() - 1, grid(105)));
    }
    rig.stores[2].trap.store(0, Relaxed);
    read(&rig, &all).unwrap();
    assert_eq!(rig.running[0].connections(), 1);
}

/// Of several failed pieces the first is reported, in whatever order the errors were found.
#[test]
fn the_first_failed_piece_is_reported() {
    let rig = rig();
    let all = [103, 205, 303].map(|at| {
        let full = Hyperslab::all(&[2, 1 << 20]);
        written(&rig, at, &[2, 1 << 20], full)
    });
    rig.stores[2].trap.store(99, Relaxed);
    for (from, first) in [(0, 103), (1, 205), (2, 303)] {
        let Err((0, StoreError::Damaged { name, .. })) = read(&rig, &all[from..]) else {
            panic!("from {from}");
        };
        assert_eq!(name, grid(first));
    }
}

/// A grid chunk that is deleted while it is read reads as fill, like one that did not exist.
#[test]
fn a_grid_chunk_deleted_during_a_read_is_fill() {
    let rig = rig();
    let form = ChunkForm {
        elem: 3,
        fill: Fill::from_bytes(&[1, 2, 3]),
        ..form(&[2, 3_000_000])
    };
    let (full, part) = (Hyperslab::all(&form.shape), slab(&[0, 1], &[2, 2_900_001]));
    let data = noise(6_000_000, 3);
    let piece = WritePiece {
        server: SERVER,
        name: &grid(104),
        form: &form,
        kind: WriteKind::Write(&full),
        data: &[IoSlice::new(&data)],
    };
    rig.servers.write(&[piece]).unwrap();
    let filled: Vec<u8> = (0..2 * 2_900_001)
        .map(|at| ((1 + at % 2_900_001) % 3 + 1) as u8)
        .collect();
    let behind = written(&rig, 1, &[1, 5000], Hyperslab::all(&[1, 5000]));
    let all = [(grid(104), form, part, Some(filled)), behind];
    rig.stores[2].trap.store(104, Relaxed);
    read(&rig, &all).unwrap();
}

//! Tests of malformed requests: all get an error reply, and none reaches the store.

use slabfs_model::MAX_RANK;

use super::*;

#[test]
fn hostile_forms_and_slabs_never_reach_the_store() {
    let rig = rig();
    let full = |shape: &[u64]| Hyperslab::all(shape);
    let mut bad = vec![
        get(9, &[4], full(&[5])),
        get(9, &[4], full(&[4, 4])),
        get(9, &[], full(&[])),
        get(9, &[1; MAX_RANK + 1], full(&[1; MAX_RANK + 1])),
        get(9, &[u64::MAX, u64::MAX], full(&[u64::MAX, u64::MAX])),
        get(9, &[1 << 40], full(&[1 << 40])),
        get(9, &[65 << 20], full(&[65 << 20])),
        get(
            9,
            &[9],
            Hyperslab {
                axes: [Axis {
                    start: 0,
                    stride: 0,
                    count: 3,
                    block: 2,
                }]
                .into_iter()
                .collect(),
            },
        ),
        get(
            9,
            &[9],
            Hyperslab {
                axes: [Axis {
                    start: u64::MAX,
                    stride: 1,
                    count: 2,
                    block: 1,
                }]
                .into_iter()
                .collect(),
            },
        ),
        get(
            9,
            &[9],
            Hyperslab {
                axes: [Axis {
                    start: 0,
                    stride: u64::MAX,
                    count: u64::MAX,
                    block: 1,
                }]
                .into_iter()
                .collect(),
            },
        ),
        ReadItem {
            name: grid(&[0; MAX_RANK + 1]),
            form: form(&[4]),
            slab: full(&[4]),
        },
    ];
    for (elem, fill) in [
        (0, Fill::zero()),
        (65537, Fill::zero()),
        (4, Fill::from_bytes(&[1, 2])),
    ] {
        let form = ChunkForm {
            elem,
            fill,
            ..form(&[4])
        };
        bad.push(ReadItem {
            name: free(9),
            form,
            slab: full(&[4]),
        });
    }
    let codec = ChunkForm {
        codec: Codec::Zstd(1000),
        ..form(&[4])
    };
    bad.push(ReadItem {
        name: free(9),
        form: codec,
        slab: full(&[4]),
    });
    for item in &bad {
        let (reply, cells): (ReadReply, _) = rig.ask(kind::READ, &vec![item], b"");
        assert!(
            matches!(&reply.pieces[..], [Found::Failed(StoreError::Invalid(_))]),
            "{item:?}: {reply:?}"
        );
        assert!(cells.is_empty());
        let op = match item.name {
            ChunkName::Free(_) => WriteOp::Put,
            ChunkName::Grid { .. } => WriteOp::Write(item.slab.clone()),
        };
        let write = WriteItem {
            name: item.name.clone(),
            form: item.form.clone(),
            op,
            bytes: 3,
        };
        let outcome = rig.outcome(kind::WRITE, &vec![write], b"abc");
        assert!(
            matches!(outcome.failed, Some(StoreError::Invalid(_))),
            "{item:?}: {outcome:?}"
        );
        if matches!(item.name, ChunkName::Grid { .. }) {
            let outcome = rig.outcome(kind::PUNCH, &vec![item], b"");
            assert!(matches!(outcome.failed, Some(StoreError::Invalid(_))));
        }
    }
    // Two pieces, each within the limit, that together exceed it.
    let half = get(9, &[40 << 20], full(&[40 << 20]));
    let (reply, _): (ReadReply, _) = rig.ask(kind::READ, &vec![half.clone(), half], b"");
    assert!(matches!(
        &reply.pieces[..],
        [Found::Failed(StoreError::Invalid(_))]
    ));
    assert_eq!(rig.store.changes.load(Relaxed), 0);
}

#[test]
fn hostile_writes_and_the_wrong_kind_of_chunk() {
    let rig = rig();
    let item = |name, op, bytes| WriteItem {
        name,
        form: form(&[4]),
        op,
        bytes,
    };
    let all = Hyperslab::all(&[4]);
    for (write, payload) in [
        (item(free(9), WriteOp::Put, 3), &b"abc"[..]),
        (item(free(9), WriteOp::Put, 5), b"abcde"),
        (item(free(9), WriteOp::Put, 4), b"abcde"),
        (item(free(9), WriteOp::Put, u64::MAX), b"abcd"),
        (item(grid(&[0]), WriteOp::Put, 4), b"abcd"),
        (item(free(9), WriteOp::Append { at: u64::MAX }, 4), b"abcd"),
        (item(free(9), WriteOp::Append { at: 1 }, 4), b"abcd"),
        (item(grid(&[0]), WriteOp::Append { at: 0 }, 4), b"abcd"),
        (item(free(9), WriteOp::Write(all.clone()), 4), b"abcd"),
        (item(grid(&[0]), WriteOp::Write(all), 3), b"abc"),
    ] {
        let outcome = rig.outcome(kind::WRITE, &vec![&write], payload);
        let failed = matches!(
            outcome,
            Outcome {
                done: 0,
                failed: Some(StoreError::Invalid(_) | StoreError::Protocol(_)),
                ..
            }
        );
        assert!(failed, "{write:?}: {outcome:?}");
    }
    let seal = SealItem {
        name: grid(&[0]),
        form: form(&[4]),
    };
    assert!(rig.outcome(kind::SEAL, &vec![seal], b"").failed.is_some());
    let clip = ClipItem {
        name: grid(&[0]),
        form: form(&[4]),
        keep: Coords::from_slice(&[1, 1]),
    };
    assert!(rig.outcome(kind::CLIP, &vec![clip], b"").failed.is_some());
    let clip = ClipItem {
        name: free(9),
        form: form(&[4]),
        keep: Coords::from_slice(&[1]),
    };
    assert!(rig.outcome(kind::CLIP, &vec![clip], b"").failed.is_some());
    let outcome = rig.outcome(kind::DELETE, &vec![free(9)], b"payload");
    assert!(matches!(outcome.failed, Some(StoreError::Protocol(_))));
    assert_eq!(rig.store.changes.load(Relaxed), 0);
    // Refused in each request's own reply format.
    let (read, _): (ReadReply, _) = rig.ask(kind::READ, &Vec::<ReadItem>::new(), b"payload");
    assert!(matches!(
        read.pieces[..],
        [Found::Failed(StoreError::Protocol(_))]
    ));
    let (space, _): (Answer<Space>, _) = rig.ask(kind::SPACE, &(), b"payload");
    assert!(matches!(space, Err(StoreError::Protocol(_))));
    let query = ListQuery {
        after: None,
        limit: 1,
    };
    let (listing, _): (Answer<Listing>, _) = rig.ask(kind::LIST, &query, b"payload");
    assert!(matches!(listing, Err(StoreError::Protocol(_))));
}

#[test]
fn control_parts_that_are_noise() {
    let rig = rig();
    let mut noise = 12345u64;
    for kind in kind::READ..=kind::LIST + 1 {
        for len in [0usize, 1, 2, 5, 17, 100, 3000] {
            let control: Vec<u8> = (0..len)
                .map(|_| {
                    noise = noise
                        .wrapping_mul(6364136223846793005)
                        .wrapping_add(1442695040888963407);
                    // Small values are likelier to decode.
                    if noise >> 63 == 0 {
                        (noise >> 40) as u8 % 4
                    } else {
                        (noise >> 40) as u8
                    }
                })
                .collect();
            match rig.pool.call(kind, &control, &[], &mut Vec::new()) {
                Ok(_) | Err(WireError::Fault { .. }) => {}
                Err(e) => panic!("kind {kind:#x}: {e}"),
            }
        }
    }
    assert_eq!(
        rig.server.connections(),
        1,
        "none of it ended the connection"
    );
}

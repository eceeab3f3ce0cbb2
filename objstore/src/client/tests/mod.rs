//! Tests of the fan-out over local stores and real servers together.

mod blank;
mod failures;
mod far;
mod same_host;
mod sent;
mod stages;

use std::{
    io::IoSlice,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use slabfs_model::{Axis, ChunkId, Codec, Coords, Fill, Hyperslab, ObjectId, Region};

use super::*;
use crate::{
    name::{ChunkForm, ChunkName},
    server::{DataServer, memory::Memory},
    wire::{Listener, MAX_DATA},
};

/// Servers 1 and 2 are local, 3 and 4 remote.
struct Rig {
    dir: tempfile::TempDir,
    servers: Servers,
    stores: Vec<Arc<Memory>>,
    running: Vec<DataServer>,
}

const ALL: [ServerId; 4] = [ServerId(1), ServerId(2), ServerId(3), ServerId(4)];

fn rig() -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let servers = Servers::new(Options {
        deadline: Duration::from_secs(10),
        ..Options::default()
    });
    let stores: Vec<_> = (0..4).map(|_| Arc::new(Memory::default())).collect();
    servers.add_local(ServerId(1), stores[0].clone());
    servers.add_local(ServerId(2), stores[1].clone());
    let mut rig = Rig {
        dir,
        servers,
        stores,
        running: Vec::new(),
    };
    for i in [2, 3] {
        let server = rig.start(i);
        rig.servers
            .set_remote(ServerId(i as u32 + 1), server.addr().clone());
        rig.running.push(server);
    }
    rig
}

impl Rig {
    fn addr(&self, i: usize) -> Addr {
        Addr::Unix(self.dir.path().join(format!("server{}", i + 1)))
    }

    fn start(&self, i: usize) -> DataServer {
        DataServer::start(
            self.stores[i].clone(),
            Listener::bind(&self.addr(i), None).unwrap(),
        )
        .unwrap()
    }
}

fn free(id: u64) -> ChunkName {
    ChunkName::Free(ChunkId(id))
}

fn grid(at: u64) -> ChunkName {
    ChunkName::Grid {
        object: ObjectId(7),
        generation: 1,
        at: Coords::from_slice(&[at, 0]),
    }
}

fn form(shape: &[u64]) -> ChunkForm {
    ChunkForm {
        shape: Coords::from_slice(shape),
        elem: 1,
        codec: Codec::None,
        fill: Fill::zero(),
    }
}

fn noise(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed)
        .collect()
}

/// Reads one batch, and notes which of the pieces were found.
fn read_batch<'a>(
    servers: &Servers,
    part: BatchPart<'a>,
    pieces: &mut Vec<BatchPiece<'a>>,
    memory: &mut [u8],
) {
    let mut ask = [BatchAsk {
        part,
        pieces: std::mem::take(pieces),
        memory,
    }];
    servers.read_batches(&mut ask).unwrap();
    let [ask] = ask;
    *pieces = ask.pieces;
}

/// Puts a chunk of `rows` rows of 1000 on each server, and reads them back, mixed with missing ones.
fn round(rig: &Rig, rows: u64) {
    let form = form(&[rows, 1000]);
    let full = Hyperslab::all(&form.shape);
    let names: Vec<_> = (0..12).map(|i| free(i + 100 * rows)).collect();
    let data: Vec<_> = (0..12).map(|i| noise(rows as usize * 1000, i)).collect();
    let slices: Vec<[IoSlice<'_>; 2]> = data
        .iter()
        .map(|d| d.split_at(333))
        .map(|(a, b)| [IoSlice::new(a), IoSlice::new(b)])
        .collect();
    let writes: Vec<_> = (0..12)
        .map(|i| WritePiece {
            server: ALL[i % 4],
            name: &names[i],
            form: &form,
            kind: WriteKind::Put,
            data: &slices[i],
        })
        .collect();
    rig.servers.write(&writes).unwrap();
    let gone = free(99_999);
    let mut outs = vec![vec![0; rows as usize * 1000]; 16];
    let mut reads: Vec<_> = outs
        .iter_mut()
        .enumerate()
        .map(|(i, out)| ReadPiece {
            server: ALL[i % 4],
            name: names.get(i).unwrap_or(&gone),
            form: &form,
            slab: &full,
            out,
            found: i % 2 == 0,
        })
        .collect();
    rig.servers.read(&mut reads).unwrap();
    for (i, read) in reads.iter().enumerate() {
        assert_eq!(read.found, i < 12, "{i}");
        assert!(i >= 12 || *read.out == data[i], "{i}");
    }
}

#[test]
fn small_and_large_over_local_and_remote() {
    let rig = rig();
    assert_eq!(rig.servers.known(), ALL);
    assert!(rig.servers.is_local(ALL[1]) && !rig.servers.is_local(ALL[2]));
    round(&rig, 1);
    round(&rig, 100);
    let now = rig.servers.counters().snapshot();
    assert_eq!((now.read.server_ops, now.write.server_ops), (24, 24));
    assert_eq!(
        (now.read.bytes_sent, now.write.bytes_sent),
        (1_212_000, 1_212_000)
    );
    assert_eq!(
        rig.running[0].connections(),
        1,
        "one message a server, one connection"
    );
}

#[test]
fn counters_count_touched_bytes() {
    let rig = rig();
    let (name, form) = (grid(0), form(&[16, 16]));
    let part = Hyperslab::from_region(&Region::new(&[0, 0], &[4, 4]));
    let data = noise(16, 0);
    let piece = WritePiece {
        server: ALL[2],
        name: &name,
        form: &form,
        kind: WriteKind::Write(&part),
        data: &[IoSlice::new(&data)],
    };
    rig.servers.write(&[piece]).unwrap();
    let endless = ChunkForm {
        shape: Coords::from_slice(&[u64::MAX, 16]),
        ..form.clone()
    };
    assert_eq!(counters::touched(&endless, 5), 5);
    rig.servers.counters().write.transfer(16);
    let write = rig.servers.counters().snapshot().write;
    let want = SideSnapshot {
        transfers: 1,
        bytes_selected: 16,
        server_ops: 1,
        messages: 1,
        bytes_sent: 16,
        bytes_touched: 256,
    };
    assert_eq!(write, want);
}

#[test]
fn pieces_larger_than_a_message() {
    let rig = rig();
    let size = MAX_DATA + MAX_DATA / 4 + 4;
    let (name, form) = (free(5), form(&[4, size as u64 / 4]));
    let full = Hyperslab::all(&form.shape);
    let data = noise(size, 3);
    let (a, b) = data.split_at(12345);
    let slices = [IoSlice::new(a), IoSlice::new(b)];
    let write = |name, kind, server| {
        rig.servers.write(&[WritePiece {
            server,
            name,
            form: &form,
            kind,
            data: &slices,
        }])
    };
    let error = write(&name, WriteKind::Put, ALL[2])
        .unwrap_err()
        .to_string();
    assert!(error.contains("append"), "{error}");
    write(&name, WriteKind::Append { at: 0 }, ALL[2]).unwrap();
    rig.servers
        .seal(&[SealPiece {
            server: ALL[2],
            name: &name,
            form: &form,
        }])
        .unwrap();
    let mut out = vec![0; size];
    let read = |server, name: &ChunkName, slab: &Hyperslab, out: &mut [u8]| {
        let mut pieces = [ReadPiece {
            server,
            name,
            form: &form,
            slab,
            out,
            found: false,
        }];
        rig.servers.read(&mut pieces).map(|()| pieces[0].found)
    };
    assert!(read(ALL[2], &name, &full, &mut out).unwrap());
    assert!(out == data);
    let place = grid(1);
    write(&place, WriteKind::Write(&full), ALL[3]).unwrap();
    out.fill(0);
    assert!(read(ALL[3], &place, &full, &mut out).unwrap());
    assert!(out == data);
    assert!(!read(ALL[3], &grid(2), &full, &mut out).unwrap());
}

#[test]
fn managing_everywhere() {
    let rig = rig();
    let form = form(&[2, 8]);
    let full = Hyperslab::all(&form.shape);
    let names: Vec<_> = (0..8).map(grid).collect();
    let data = [IoSlice::new(&[7; 16])];
    let write = |i: usize| WritePiece {
        server: ALL[i % 4],
        name: &names[i],
        form: &form,
        kind: WriteKind::Write(&full),
        data: &data,
    };
    rig.servers
        .write(&(0..8).map(write).collect::<Vec<_>>())
        .unwrap();
    let read = |i: usize| {
        let mut out = [1; 16];
        let mut piece = [ReadPiece {
            server: ALL[i % 4],
            name: &names[i],
            form: &form,
            slab: &full,
            out: &mut out,
            found: false,
        }];
        rig.servers.read(&mut piece).unwrap();
        piece[0].found.then_some(out)
    };
    let clip = |i: usize| ClipPiece {
        server: ALL[i % 4],
        name: &names[i],
        form: &form,
        keep: &[1, 3],
    };
    rig.servers
        .clip(&(0..4).map(clip).collect::<Vec<_>>())
        .unwrap();
    let punch = |i: usize| PunchPiece {
        server: ALL[i % 4],
        name: &names[i],
        form: &form,
        slab: &full,
    };
    rig.servers
        .punch(&(4..8).map(punch).collect::<Vec<_>>())
        .unwrap();
    for i in 0..8 {
        let want = if i < 4 {
            [7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        } else {
            [0; 16]
        };
        assert_eq!(read(i), Some(want), "{i}");
    }
    let placed: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(i, n)| (ALL[i % 4], n.clone()))
        .collect();
    rig.servers.sync(&placed).unwrap();
    assert!(rig.stores.iter().all(|s| s.synced.load(Relaxed) == 2));
    rig.servers.sync_all(&ALL).unwrap();
    assert!(rig.stores.iter().all(|s| s.synced.load(Relaxed) == 3));
    rig.servers.delete(&placed[..4]).unwrap();
    rig.servers.delete_generation(&ALL, ObjectId(7), 1).unwrap();
    for (i, server) in ALL.into_iter().enumerate() {
        assert_eq!(read(i), None);
        assert_eq!(
            rig.servers.list(server, None, 10).unwrap(),
            [(names[i + 4].clone(), 16)]
        );
        assert_eq!(rig.servers.space(server).unwrap().used, 16);
    }
    rig.servers.delete_grid(&ALL, ObjectId(7)).unwrap();
    assert!(
        ALL.iter()
            .all(|&s| rig.servers.list(s, None, 10).unwrap().is_empty())
    );
}

#[test]
fn only_local_chunks_are_shown() {
    let rig = rig();
    let form = form(&[4]);
    let full = Hyperslab::all(&form.shape);
    let name = free(5);
    for server in ALL {
        let piece = WritePiece {
            server,
            name: &name,
            form: &form,
            kind: WriteKind::Put,
            data: &[IoSlice::new(b"abcd")],
        };
        rig.servers.write(&[piece]).unwrap();
        let mut seen = Vec::new();
        let shown = rig
            .servers
            .show(server, &name, &form, &full, &mut |b| {
                seen.extend_from_slice(b)
            })
            .unwrap();
        assert_eq!(shown, rig.servers.is_local(server));
        assert_eq!(seen, if shown { &b"abcd"[..] } else { b"" });
    }
    let column = Hyperslab {
        axes: [Axis::every(0, 2, 2)].into_iter().collect(),
    };
    assert!(
        !rig.servers
            .show(ALL[0], &name, &form, &column, &mut |_| panic!(
                "not contiguous"
            ))
            .unwrap()
    );
}

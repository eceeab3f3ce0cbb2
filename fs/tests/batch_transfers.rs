//! Batches as transfers, over real sockets: their messages and commits when mixed with regions, writes of pieces that
//! leave the bytes between them intact, cancellation, and changes of dims.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod sockets;

use slabfs_fs::client::transfer::{self, Memory, start_all, wait_all};
use std::sync::Arc;

use slabfs_fs::client::{ClientOptions, FsError, Handle};
use slabfs_model::Coords;
use slabfs_model::batch::{self, Batch, Place};
use sockets::{Cluster, WRITE, create, messages, number, options, read_all, slab, spec};

/// Pieces of 3 bytes, every 5 bytes of a row of 100.
fn pieces_of(row: u64) -> batch::Plan {
    let file = Place::at(row as i64 * 100).every(5);
    let pieces = batch::Pattern::Data(3);
    let one = Batch::repeated(file, Place::at(0).every(3), 20, pieces);
    batch::Plan::new(&[one], 1).unwrap()
}

/// Regions and batches of two objects, started as one: one message a server and one commit an object in all mixes.
#[test]
fn batches_and_regions_take_one_message_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 3);
    let client = cluster.client(ClientOptions::default());
    let counted = client.without_upkeep();
    let mut aligned = spec("u1", &[96, 100], "aligned");
    aligned.placement = Some("region".parse().unwrap());
    let (_, aligned) = create(&client, "aligned", aligned);
    let (_, grid) = create(&client, "grid", spec("u1", &[96, 100], "grid:8,100"));
    let mut naive = [vec![0u8; 9600], vec![0u8; 9600]];
    let handles = [&aligned, &grid];
    // Rows of the first object, of the second, of both; batches alone and mixed with regions.
    for (round, (objects, batches_only)) in [
        (&[0usize, 1][..], false),
        (&[0, 1], false),
        (&[0], true),
        (&[1], true),
        (&[0, 1], true),
    ]
    .into_iter()
    .enumerate()
    {
        let seed = round as u8 * 50;
        let mut writes = Vec::new();
        for &object in objects {
            for row in 0..96u64 {
                let value = seed + row as u8 % 50 + 1;
                let all = &mut naive[object][row as usize * 100..][..100];
                // Some rows twice: the batch over the region, or the other way round.
                let full_row = || {
                    let to = slab(&[row, 0], &[1, 100]);
                    let bytes = vec![value; 100];
                    handles[object].write_transfer(&to, &Memory::packed(), bytes)
                };
                let pieces = || {
                    let bytes = vec![value ^ 0x80; 60];
                    handles[object].write_batch_transfer(pieces_of(row), bytes)
                };
                let paint = |all: &mut [u8]| {
                    for piece in all.chunks_mut(5) {
                        piece[..3].fill(value ^ 0x80);
                    }
                };
                match if batches_only { 0 } else { row % 4 } {
                    0 => {
                        writes.push(pieces().unwrap());
                        paint(all);
                    }
                    1 => {
                        writes.push(full_row().unwrap());
                        all.fill(value);
                    }
                    2 => {
                        writes.push(full_row().unwrap());
                        writes.push(pieces().unwrap());
                        all.fill(value);
                        paint(all);
                    }
                    _ => {
                        writes.push(pieces().unwrap());
                        writes.push(full_row().unwrap());
                        all.fill(value);
                    }
                }
            }
        }
        let (before, committed) = (messages(&client), number(&client, "/commits"));
        start_all(&mut writes).unwrap();
        for end in wait_all(writes).unwrap() {
            end.unwrap();
        }
        if round > 0 {
            // After the first round ids and places are leased, and connections open.
            assert_eq!(messages(&client) - before, 3, "round {round}");
            let commits = number(&client, "/commits") - committed;
            assert_eq!(commits, objects.len() as u64, "round {round}");
        }
        let mut reads = Vec::new();
        let mut expected = Vec::new();
        for &object in objects {
            for row in 0..96u64 {
                let own = &naive[object][row as usize * 100..][..100];
                if row % 3 == 0 || batches_only {
                    let read = handles[object].read_batch_transfer(pieces_of(row), vec![0; 60]);
                    reads.push(read.unwrap());
                    let pieces = own.chunks(5).flat_map(|piece| &piece[..3]);
                    expected.push(pieces.copied().collect::<Vec<u8>>());
                } else {
                    let from = slab(&[row, 0], &[1, 100]);
                    let read =
                        handles[object].read_transfer(&from, &Memory::packed(), vec![0; 100]);
                    reads.push(read.unwrap());
                    expected.push(own.to_vec());
                }
            }
        }
        let (before, asked) = (messages(&client), number(&client, "/metadata_requests"));
        let read = wait_all(reads).unwrap();
        if round > 0 {
            assert_eq!(messages(&client) - before, 3, "round {round}");
            assert_eq!(
                number(&client, "/metadata_requests"),
                asked,
                "round {round}"
            );
        }
        for (at, (got, expected)) in read.into_iter().zip(expected).enumerate() {
            assert_eq!(got.unwrap(), expected, "round {round}, {at}");
        }
    }
    drop(counted);
    for (handle, naive) in handles.into_iter().zip(&naive) {
        assert!(&read_all(handle) == naive);
        handle.release().unwrap();
    }
    client.stop().unwrap();
    cluster.close();
}

/// Irregular pieces, started together with a write between them and with one another: bytes between pieces are read and
/// written back only where there is no concurrent write.
#[test]
fn irregular_pieces_leave_concurrent_writes_intact() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 2);
    let client = cluster.client(ClientOptions::default());
    let (_, handle) = create(&client, "a", spec("i4", &[4, 5000], "aligned"));
    let mut naive = vec![0u8; 80_000];
    // Pieces that begin within elements, at irregular places in every row.
    let pieces = |shift: i64| -> Vec<Batch> {
        let at = |n: i64| n * 19 + n % 7 + n % 3 + shift;
        let one = |n: i64| Batch::data(Place::at(at(n)), Place::at(n), 1);
        (0..3500).map(one).collect()
    };
    for round in 0..4u8 {
        let mut writes = Vec::new();
        for shift in [0i64, 9] {
            let plan = batch::Plan::new(&pieces(shift), 1).unwrap();
            let bytes = vec![round * 8 + shift as u8 + 1; 3500];
            writes.push((shift, handle.write_batch_transfer(plan, bytes).unwrap()));
        }
        let row = u64::from(round);
        let to = slab(&[row, 100], &[1, 300]);
        let mut region = handle
            .write_transfer(&to, &Memory::packed(), vec![0xaa + round; 1200])
            .unwrap();
        // The region between the two batches; in other rounds before or after both.
        let (one, two) = writes.split_at_mut(1);
        let (one, two) = (&mut one[0].1, &mut two[0].1);
        let order: [&mut transfer::Transfer<Vec<u8>>; 3] = match round % 3 {
            0 => [&mut region, one, two],
            1 => [one, &mut region, two],
            _ => [one, two, &mut region],
        };
        start_all(order).unwrap();
        let paint = |naive: &mut [u8], shift: i64| {
            for batch in pieces(shift) {
                naive[batch.file.offset as usize] = round * 8 + shift as u8 + 1;
            }
        };
        let at = row as usize * 20_000 + 400;
        let regions = |naive: &mut [u8]| naive[at..at + 1200].fill(0xaa + round);
        match round % 3 {
            0 => {
                regions(&mut naive);
                paint(&mut naive, 0);
                paint(&mut naive, 9);
            }
            1 => {
                paint(&mut naive, 0);
                regions(&mut naive);
                paint(&mut naive, 9);
            }
            _ => {
                paint(&mut naive, 0);
                paint(&mut naive, 9);
                regions(&mut naive);
            }
        }
        region.wait().unwrap();
        for (_, write) in writes {
            write.wait().unwrap();
        }
        assert!(read_all(&handle) == naive, "round {round}");
    }
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// A running batch can be cancelled like any transfer: nothing of it is committed, and the transfers started with it
/// complete. It runs as long as necessary because its server is down meanwhile.
#[test]
fn a_running_batch_is_cancelled() {
    let dir = tempfile::tempdir().unwrap();
    let mut cluster = Cluster::open(dir.path(), 1);
    let client = cluster.client(options());
    let (_, handle) = create(&client, "a", spec("u1", &[8, 100], "aligned"));
    let fill_object = |value: u8| {
        let to = slab(&[0, 0], &[8, 100]);
        let write = handle.write_transfer(&to, &Memory::packed(), vec![value; 800]);
        write.unwrap().wait().unwrap();
    };
    fill_object(1);
    let running = || {
        while number(&client, "/transfers_running") == 0 {
            std::thread::yield_now();
        }
    };
    for dropped in [false, true] {
        cluster.nodes[0].kill();
        let mut cancelled = handle
            .write_batch_transfer(pieces_of(2), vec![9; 60])
            .unwrap();
        let mut concurrent = handle
            .write_batch_transfer(pieces_of(3), vec![7; 60])
            .unwrap();
        start_all([&mut cancelled, &mut concurrent]).unwrap();
        running();
        // The engine has taken it: it is no longer waiting.
        while client.stats()["transfers_waiting"].as_u64() != Some(0) {
            std::thread::yield_now();
        }
        cancelled.cancel();
        if dropped {
            drop(cancelled);
            cluster.nodes[0].revive();
        } else {
            cluster.nodes[0].revive();
            let end = cancelled.wait().unwrap_err();
            assert!(matches!(end.error, FsError::Cancelled), "{end}");
        }
        concurrent.wait().unwrap();
        let all = read_all(&handle);
        assert_eq!(&all[200..300], [1; 100], "dropped: {dropped}");
        assert_eq!(&all[300..305], [7, 7, 7, 1, 1]);
        // The same for a read.
        cluster.nodes[0].kill();
        let mut read = handle
            .read_batch_transfer(pieces_of(3), vec![0; 60])
            .unwrap();
        read.start().unwrap();
        while client.stats()["transfers_waiting"].as_u64() != Some(0) {
            std::thread::yield_now();
        }
        read.cancel();
        cluster.nodes[0].revive();
        let end = read.wait().unwrap_err();
        assert!(matches!(end.error, FsError::Cancelled), "{end}");
    }
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// A batch that fills several messages of a server takes no more messages than that, in writes and reads.
#[test]
fn a_large_batch_fills_its_messages() {
    const PIECE: u64 = 4 << 10;
    const PIECES: u64 = (288 << 20) / PIECE;
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 2);
    let client = cluster.client(ClientOptions::default());
    let counted = client.without_upkeep();
    let dims = [PIECES, PIECE + 96];
    let (_, handle) = create(&client, "grid", spec("u1", &dims, "grid:512,4192"));
    let every = Batch::repeated(
        Place::at(48).every(PIECE as i64 + 96),
        Place::at(0).every(PIECE as i64),
        PIECES,
        batch::Pattern::Data(PIECE),
    );
    let plan = || batch::Plan::new(std::slice::from_ref(&every), 1).unwrap();
    let bytes: Vec<u8> = (0..PIECES * PIECE / 8)
        .flat_map(|number| (number * 0x9E37_79B9).to_le_bytes())
        .collect();
    let before = messages(&client);
    let write = handle.write_batch_transfer(plan(), bytes).unwrap();
    let bytes = write.wait().unwrap();
    let written = messages(&client) - before;
    let read = handle
        .read_batch_transfer(plan(), vec![0; bytes.len()])
        .unwrap();
    let before = messages(&client);
    assert!(read.wait().unwrap() == bytes);
    let read = messages(&client) - before;
    // 288 MiB are 4.5 messages; each server has one that is not full, and so has each 128 MiB portion of a write.
    assert!((5..=8).contains(&written), "{written}");
    assert!((5..=6).contains(&read), "{read}");
    drop(counted);
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// Rows of several strides over older rows on other servers: still one message a server, and the data written last is
/// read.
#[test]
fn overlapping_chunks_cost_no_more_messages() {
    const ROWS: u64 = 16;
    const COLUMNS: u64 = 3000;
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 3);
    let client = cluster.client(ClientOptions::default());
    let counted = client.without_upkeep();
    let (ino, handle) = create(&client, "aligned", spec("u1", &[ROWS, COLUMNS], "aligned"));
    let mut naive = vec![0u8; (ROWS * COLUMNS) as usize];
    for layer in 0..7u8 {
        // Every first to fourth row, and of each of these every few bytes.
        let (step, every) = (1 + u64::from(layer) % 4, 2 + u64::from(layer) % 3);
        let rows = ROWS / step;
        let columns = COLUMNS / every;
        let row = Batch::repeated(
            Place::after(i64::from(layer)).every(every as i64),
            Place::after(0).every(1),
            columns - u64::from(layer),
            batch::Pattern::Data(1),
        );
        let all = Batch::repeated(
            Place::at(0).every((step * COLUMNS) as i64),
            Place::at(0).every((columns - u64::from(layer)) as i64),
            rows,
            batch::Pattern::Vector(vec![row]),
        );
        let plan = batch::Plan::new(&[all], 1).unwrap();
        let bytes: Vec<u8> = (0..plan.bytes()).map(|at| at as u8 ^ layer << 5).collect();
        let mut from = bytes.iter();
        for row in 0..rows {
            for column in 0..columns - u64::from(layer) {
                let at = row * step * COLUMNS + u64::from(layer) + column * every;
                naive[at as usize] = *from.next().unwrap();
            }
        }
        let on = format!("server:{}", layer % 3 + 1);
        let placement = Some(on.parse().unwrap());
        let change = slabfs_mdserver::api::SpecChange {
            placement,
            ..Default::default()
        };
        client.declare(ino, change).unwrap();
        let write = handle.write_batch_transfer(plan, bytes).unwrap();
        write.wait().unwrap();
    }
    let half = Batch::repeated(
        Place::at(1).every(2),
        Place::at(0).every(1),
        ROWS * COLUMNS / 2,
        batch::Pattern::Data(1),
    );
    let plan = Arc::new(batch::Plan::new(&[half], 1).unwrap());
    let right: Vec<u8> = naive.iter().copied().skip(1).step_by(2).collect();
    for round in 0..3 {
        let before = messages(&client);
        let bytes = match round {
            0 => {
                let mut out = vec![0xEE; right.len()];
                handle.read_batch(&plan, 0..plan.bytes(), &mut out).unwrap();
                out
            }
            _ => {
                let reads = (0..2).map(|_| {
                    let out = vec![0xEE; right.len()];
                    handle.read_batch_transfer((*plan).clone(), out).unwrap()
                });
                let reads: Vec<_> = reads.collect();
                let mut ends = wait_all(reads).unwrap().into_iter().map(Result::unwrap);
                let (one, two) = (ends.next().unwrap(), ends.next().unwrap());
                assert!(one == two);
                one
            }
        };
        let asked = messages(&client) - before;
        let wrong = bytes
            .iter()
            .zip(&right)
            .position(|(one, other)| one != other);
        assert_eq!((round, bytes.len(), wrong), (round, right.len(), None));
        // Files may be handed out the first time; later reads of these send no request.
        assert!(asked <= 3 && (round > 0 || asked == 3), "{round}: {asked}");
    }
    drop(counted);
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// Pieces far apart keep a server busy for long, so a batch of many of them is sent in several messages.
#[test]
fn a_batch_of_distant_pieces_is_sent_in_portions() {
    const STRIDE: u64 = 4096;
    const PIECES: u64 = 2048;
    const TIMES: u64 = 1100;
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 1);
    let client = cluster.client(ClientOptions::default());
    let counted = client.without_upkeep();
    let len = PIECES * STRIDE;
    let layout = format!("grid:1,{len}");
    let (_, handle) = create(&client, "grid", spec("u1", &[1, len], &layout));
    // One byte in each page, and all of them repeatedly.
    let row = Batch::repeated(
        Place::at(9).every(STRIDE as i64),
        Place::after(0).every(1),
        PIECES,
        batch::Pattern::Data(1),
    );
    let all = Batch::repeated(
        Place::at(0),
        Place::at(0).every(PIECES as i64),
        TIMES,
        batch::Pattern::Vector(vec![row]),
    );
    let plan = batch::Plan::new(&[all], 1).unwrap();
    let bytes: Vec<u8> = (0..PIECES * TIMES)
        .map(|at| (at % PIECES * 3 + at / PIECES) as u8)
        .collect();
    let before = messages(&client);
    let write = handle.write_batch_transfer(plan, bytes.clone()).unwrap();
    write.wait().unwrap();
    // 2.1 MiB of pieces, 1 MiB of which reach over 4 GiB.
    assert_eq!(messages(&client) - before, 3);
    let last = &bytes[bytes.len() - PIECES as usize..];
    let mut right = vec![0; len as usize];
    for (page, byte) in right.chunks_mut(STRIDE as usize).zip(last) {
        page[9] = *byte;
    }
    let found = read_all(&handle);
    let wrong = found
        .iter()
        .zip(&right)
        .position(|(one, other)| one != other);
    assert_eq!((found.len(), wrong), (right.len(), None));
    drop(counted);
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// Repeated writes to one place cost as much as the last of them, and a batch with too many pieces to complete ends
/// when it is cancelled.
#[test]
fn endless_repetitions_end() {
    for layout in ["aligned", "grid:4,100"] {
        endless_repetitions_end_in(layout);
    }
}

fn endless_repetitions_end_in(layout: &str) {
    const OFTEN: u64 = 1_000_000_000_000;
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 1);
    let client = cluster.client(ClientOptions::default());
    let (_, handle) = create(&client, "a", spec("u1", &[8, 100], layout));
    let endless = |inner: batch::Pattern| {
        let file = Place::at(7);
        let memory = Place::at(0);
        let one = Batch::repeated(file, memory, OFTEN, inner);
        batch::Plan::new(&[one], 1).unwrap()
    };
    let mut last = handle
        .write_batch_transfer(endless(batch::Pattern::Data(1)), vec![9; 1])
        .unwrap();
    last.start().unwrap();
    last.wait().unwrap();
    assert_eq!(&read_all(&handle)[6..9], [0, 9, 0]);
    // Two bytes alternately: no repetition replaces the one before it.
    let two = |at| Batch::data(Place::at(at), Place::at(at), 1);
    let pair = batch::Pattern::Vector(vec![two(0), two(1)]);
    let mut never = handle
        .write_batch_transfer(endless(pair), vec![5; 2])
        .unwrap();
    never.start().unwrap();
    while number(&client, "/transfers_running") == 0 {
        std::thread::yield_now();
    }
    never.cancel();
    let end = never.wait().unwrap_err();
    assert!(matches!(end.error, FsError::Cancelled), "{end}");
    // In chunks no part of a cancelled write is visible; in place it may be.
    if layout == "aligned" {
        assert_eq!(&read_all(&handle)[6..9], [0, 9, 0]);
    }
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

/// A second mount that opens an object waits only for the rows that a long write of the first mount touches.
#[test]
fn a_second_mount_waits_only_for_the_rows_of_a_running_batch() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 1);
    let client = cluster.client(ClientOptions::default());
    let (ino, handle) = create(&client, "a", spec("u1", &[8, 100], "aligned"));
    let row = |number: u64| slab(&[number, 0], &[1, 100]);
    let fill = |handle: &Arc<Handle>, to: u64, value| {
        let write = handle.write_transfer(&row(to), &Memory::packed(), vec![value; 100]);
        write.unwrap().wait()
    };
    fill(&handle, 5, 5).unwrap();
    // Two bytes of the first row alternately, far longer than the test runs.
    let two = |at| Batch::data(Place::at(at), Place::at(at), 1);
    let pair = batch::Pattern::Vector(vec![two(0), two(1)]);
    let endless = Batch::repeated(Place::at(7), Place::at(0), 1_000_000_000_000, pair);
    let endless = batch::Plan::new(&[endless], 1).unwrap();
    let mut endless = handle.write_batch_transfer(endless, vec![9; 2]).unwrap();
    endless.start().unwrap();
    while number(&client, "/transfers_running") == 0 {
        std::thread::yield_now();
    }

    let second = cluster.client(options());
    let (_, own) = create(&second, "b", spec("u1", &[8, 100], "aligned"));
    fill(&own, 0, 3).unwrap();
    own.flush().unwrap();
    let concurrent = second.open(ino, WRITE, None).unwrap();
    let mut seen = concurrent
        .read_transfer(&row(5), &Memory::packed(), vec![0; 100])
        .unwrap();
    seen.start().unwrap();
    assert_eq!(seen.wait().unwrap(), [5; 100]);
    fill(&concurrent, 6, 6).unwrap();
    // The first mount continues to work as well.
    let (_, another) = create(&client, "c", spec("u1", &[8, 100], "aligned"));
    another.write(0, &[4; 100]).unwrap();
    another.flush().unwrap();
    assert_eq!(number(&client, "/transfers_running"), 1);

    // A read of that row waits, and then returns the data as the cancelled batch left it.
    let recalled = number(&client, "/rights_recalled");
    let mut waits = concurrent
        .read_transfer(&row(0), &Memory::packed(), vec![9; 100])
        .unwrap();
    waits.start().unwrap();
    while number(&client, "/rights_recalled") == recalled {
        std::thread::yield_now();
    }
    assert!(!waits.test());
    endless.cancel();
    let end = endless.wait().unwrap_err();
    assert!(matches!(end.error, FsError::Cancelled), "{end}");
    assert_eq!(waits.wait().unwrap(), [0; 100]);
    let all = read_all(&concurrent);
    assert_eq!(all[..500], [0; 500]);
    assert_eq!(all[500..], [[5; 100], [6; 100], [0; 100]].concat());
    for handle in [own, concurrent] {
        handle.release().unwrap();
    }
    second.stop().unwrap();
    for handle in [handle, another] {
        handle.release().unwrap();
    }
    client.stop().unwrap();
    cluster.close();
}

/// A batch counts bytes: with another row length they belong to other elements.
#[test]
fn a_batch_that_was_made_before_its_rows_changed_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::open(dir.path(), 1);
    let client = cluster.client(options());
    let (ino, handle) = create(&client, "a", spec("u1", &[8, 100], "aligned"));
    let made = |row| {
        handle
            .write_batch_transfer(pieces_of(row), vec![9; 60])
            .unwrap()
    };
    let (mut refused, mut taken) = (made(2), made(3));
    client.set_dims(ino, Coords::from_slice(&[8, 50])).unwrap();
    refused.start().unwrap();
    let end = refused.wait().unwrap_err();
    let message = end.error.to_string();
    assert!(
        matches!(end.error, FsError::Invalid(_)) && message.contains("dims were changed"),
        "{message}"
    );
    assert_eq!(end.buffer, [9; 60]);
    assert_eq!(read_all(&handle), [0; 8 * 50]);
    // Fewer rows of the same length change nothing.
    client.set_dims(ino, Coords::from_slice(&[6, 100])).unwrap();
    taken.start().unwrap();
    taken.wait().unwrap();
    assert_eq!(&read_all(&handle)[300..305], [9, 9, 9, 0, 0]);
    handle.release().unwrap();
    client.stop().unwrap();
    cluster.close();
}

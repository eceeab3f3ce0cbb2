//! Background write-back while writers continue, over a store that fails or blocks on command.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod gates;

use std::sync::Arc;
use std::time::Duration;

use gates::{Gate, READ, array, start};
use slabfs_fs::client::{Client, ClientOptions, Handle};

const COLUMNS: u64 = 64 << 10;
/// Only this part of a row is written at once, so that it waits in memory.
const PART: u64 = COLUMNS / 2;
const LIMIT: u64 = 4 << 20;

fn options() -> ClientOptions {
    ClientOptions {
        dirty_limit: LIMIT,
        // Nothing is flushed for its age.
        flush_age: Duration::from_secs(3600),
        ..ClientOptions::default()
    }
}

/// Writes the first half of rows.
fn write(handle: &Handle, rows: std::ops::Range<u64>) {
    for row in rows {
        handle
            .write(row * COLUMNS, &[row as u8 + 1; PART as usize])
            .unwrap();
    }
}

fn dirty(client: &Client) -> u64 {
    client.stats()["dirty_bytes"].as_u64().unwrap()
}

fn check(client: &Arc<Client>, ino: slabfs_mdserver::api::Ino, rows: u64) {
    let handle = client.open(ino, READ, None).unwrap();
    let mut seen = Vec::new();
    for row in 0..rows {
        seen.clear();
        let mut sink = |part: &[u8]| seen.extend_from_slice(part);
        handle
            .read(row * COLUMNS, COLUMNS as usize, &mut sink)
            .unwrap();
        let (written, rest) = seen.split_at(PART as usize);
        assert!(
            written.iter().all(|&byte| byte == row as u8 + 1),
            "row {row}"
        );
        assert!(rest.iter().all(|&byte| byte == 0), "row {row}");
    }
    handle.release().unwrap();
}

/// With a store that blocks, half of the dirty limit is in flight while writers fill the other half.
#[test]
fn writers_continue_during_background_write_back() {
    let dir = tempfile::tempdir().unwrap();
    let (client, store, heart, service) = start(dir.path(), options());
    let (ino, writer) = array(&client, &[200, COLUMNS]);
    store.set(Gate::Shut(false));
    let half = LIMIT / 2 / PART;
    write(&writer, 0..half + 1);
    // The write-back started without a request from the writer.
    store.until(|gate| gate == Gate::Shut(true));
    // If this write waited, it would never return.
    write(&writer, half + 1..half + 20);
    assert!(dirty(&client) > LIMIT / 2);
    check(&client, ino, half + 20);
    let blocked = {
        let writer = writer.clone();
        std::thread::spawn(move || write(&writer, half + 20..200))
    };
    store.set(Gate::Open);
    blocked.join().unwrap();
    check(&client, ino, 200);
    writer.fsync().unwrap();
    assert_eq!(dirty(&client), 0);
    // Few chunks, not one for each time that a writer reached the limit.
    let chunks = store.put.lock().unwrap().len();
    assert!(chunks <= 6, "{chunks} chunks");
    check(&client, ino, 200);
    writer.release().unwrap();
    client.stop().unwrap();
    drop(client);
    heart.stop();
    drop(store);
    service.close().unwrap();
}

/// A failed background write-back is not reported to writers, and is retried by the next caller that has to wait for
/// it.
#[test]
fn a_failed_background_write_back_loses_nothing_and_is_not_reported() {
    let dir = tempfile::tempdir().unwrap();
    let (client, store, heart, service) = start(dir.path(), options());
    let (ino, writer) = array(&client, &[200, COLUMNS]);
    store.set(Gate::Failing);
    let half = LIMIT / 2 / PART;
    write(&writer, 0..half + 1);
    store.until_failed(1);
    // It is not retried in the background from now on.
    write(&writer, half + 1..half + 20);
    assert_eq!(store.failed(), 1);
    check(&client, ino, half + 20);
    store.set(Gate::Open);
    writer.fsync().unwrap();
    check(&client, ino, half + 20);
    // After a successful write-back, the background one resumes.
    store.set(Gate::Shut(false));
    write(&writer, 0..half + 1);
    store.until(|gate| gate == Gate::Shut(true));
    store.set(Gate::Open);
    writer.release().unwrap();
    check(&client, ino, half + 20);

    // At the limit the writer gets the error.
    let writer = client.open(ino, gates::WRITE, None).unwrap();
    store.set(Gate::Failing);
    let reported = (0..200).find_map(|row| {
        let bytes = [row as u8 + 1; PART as usize];
        writer.write(row * COLUMNS, &bytes).err()
    });
    assert!(reported.is_some(), "no write failed");
    store.set(Gate::Open);
    write(&writer, 0..200);
    writer.fsync().unwrap();
    check(&client, ino, 200);
    writer.release().unwrap();
    client.stop().unwrap();
    drop(client);
    heart.stop();
    drop(store);
    service.close().unwrap();
}

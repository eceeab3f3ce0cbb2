//! Operations on an object during its last close, over a store that fails or blocks on command.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod gates;

use gates::{Gate, READ, array, start};
use slabfs_fs::client::ClientOptions;
use slabfs_mdserver::api::{SetAttr, SetTime, Time};

/// `utimensat` writes back dirty data; the last close, which has nothing to write back itself, happens during that.
#[test]
fn times_are_set_during_the_last_close() {
    let dir = tempfile::tempdir().unwrap();
    let (client, store, heart, service) = start(dir.path(), ClientOptions::default());
    let (ino, writer) = array(&client, &[4, 4]);
    let reader = client.open(ino, READ, None).unwrap();
    writer.write(0, &[7; 16]).unwrap();
    store.set(Gate::Failing);
    writer.release().unwrap_err();

    store.set(Gate::Shut(false));
    let set = {
        let client = client.clone();
        std::thread::spawn(move || {
            let set = SetAttr {
                mtime: Some(SetTime::To(Time { sec: 5, nsec: 6 })),
                ..SetAttr::default()
            };
            client.setattr(ino, set, None)
        })
    };
    store.until(|gate| gate == Gate::Shut(true));
    reader.release().unwrap();
    store.set(Gate::Open);
    let entry = set.join().unwrap().unwrap();
    assert_eq!(entry.attr.mtime, Time { sec: 5, nsec: 6 });

    // The chunk that remains to be synced is known.
    let again = client.open(ino, READ, None).unwrap();
    again.fsync().unwrap();
    let put = store.put.lock().unwrap().clone();
    assert_eq!(put.len(), 1);
    let synced = store.synced.lock().unwrap().clone();
    assert!(synced.contains(&put[0]), "{put:?} of {synced:?}");
    let mut seen = Vec::new();
    again
        .read(0, 16, &mut |part: &[u8]| {
            seen.extend_from_slice(part);
        })
        .unwrap();
    assert_eq!(seen, [7; 16]);
    again.release().unwrap();
    client.stop().unwrap();
    drop(client);
    heart.stop();
    drop(store);
    service.close().unwrap();
}

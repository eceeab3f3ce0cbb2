//! Tests of `.slabfs/call`: requests and their replies.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

use super::stage::{BOTH, Services, Stage};
use super::xattr::errno;
use crate::call::REQUEST_LIMIT;
use crate::mount::calls::MOST_OPEN;

fn open(stage: &Stage) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(stage.path(".slabfs/call"))
}

fn read(file: &File) -> Value {
    let mut text = vec![0; 64 << 10];
    let len = file.read_at(&mut text, 0).unwrap();
    assert_eq!(file.read_at(&mut text[len..], len as u64).unwrap(), 0);
    serde_json::from_slice(&text[..len]).unwrap()
}

fn ask(file: &File, request: &Value) -> Value {
    file.write_all_at(request.to_string().as_bytes(), 0)
        .unwrap();
    read(file)
}

#[test]
fn consecutive_requests_are_answered() {
    for services in BOTH {
        let Some(stage) = Stage::set(services) else {
            return;
        };
        let file = open(&stage).unwrap();
        let reply = ask(&file, &json!({"op": "servers"}));
        assert_eq!(reply["ok"][0]["online"], true, "{services:?} {reply}");
        let reply = ask(&file, &json!({"op": "servers", "what": 1}));
        assert_eq!(reply["errno"], libc::EINVAL);
        let reply = ask(&file, &json!({"op": "nothing"}));
        assert_eq!(reply["errno"], libc::ENOSYS);
        assert!(reply["error"].as_str().unwrap().contains("nothing"));
        let reply = ask(&file, &json!([1]));
        assert_eq!(reply["errno"], libc::EINVAL);
        // A request may come in parts, and each open has a reply of its own.
        let other = open(&stage).unwrap();
        other.write_all_at(b"{\"op\":", 0).unwrap();
        other.write_all_at(b"\"servers\"}", 6).unwrap();
        assert!(read(&other)["ok"].is_array());
        assert_eq!(read(&file)["errno"], libc::EINVAL);
    }
}

#[test]
fn invalid_requests_are_refused_at_once() {
    let Some(stage) = Stage::set(Services::Here) else {
        return;
    };
    let file = open(&stage).unwrap();
    assert_eq!(errno(file.write_all_at(b"x", 5)), libc::EINVAL);
    let mib = vec![b' '; 1 << 20];
    for at in 0..REQUEST_LIMIT >> 20 {
        file.write_all_at(&mib, (at << 20) as u64).unwrap();
    }
    assert_eq!(
        errno(file.write_all_at(b" ", REQUEST_LIMIT as u64)),
        libc::EFBIG
    );
    assert_eq!(read(&file)["errno"], libc::EINVAL);
    let text = std::fs::read_to_string(stage.path(".slabfs/call")).unwrap();
    assert!(text.contains("write a request first"), "{text}");
    assert_eq!(
        std::fs::metadata(stage.path(".slabfs/call")).unwrap().len(),
        0
    );
}

#[test]
fn open_calls_are_counted() {
    let Some(stage) = Stage::set(Services::Here) else {
        return;
    };
    let open_all: Vec<File> = (0..MOST_OPEN).map(|_| open(&stage).unwrap()).collect();
    assert_eq!(errno(open(&stage)), libc::EAGAIN);
    drop(open_all);
    // The kernel sends the release after the close has returned.
    let mut tries = 0..10_000;
    let file = loop {
        match open(&stage) {
            Ok(file) => break file,
            Err(error) => assert!(tries.next().is_some(), "{error}"),
        }
        std::thread::yield_now();
    };
    assert!(ask(&file, &json!({"op": "servers"}))["ok"].is_array());
}

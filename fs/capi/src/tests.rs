//! Tests of invalid arguments, which get a code and a message, and of panics, which are caught.

mod batches;
#[path = "../../tests/sockets/mod.rs"]
mod sockets;
mod stage;
mod transfers;
#[path = "../../tests/trees/mod.rs"]
mod trees;

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use crate::error::call;
use crate::*;
use stage::message;

#[test]
fn a_panic_is_a_code() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    assert_eq!(call(|| panic!("seven {}", 7)), SLABFS_EINTERNAL);
    std::panic::set_hook(hook);
    assert!(message().contains("seven 7"), "{}", message());
    assert_eq!(call(|| Ok(())), SLABFS_OK);
    assert_eq!(message(), "");
    assert_eq!(slabfs_error_index(), -1);
}

#[test]
fn each_thread_has_its_message() {
    assert_eq!(slabfs_close(slabfs_session { id: 0 }), SLABFS_EHANDLE);
    let other = std::thread::spawn(message).join().unwrap();
    assert_eq!(other, "");
    assert!(message().contains("session"), "{}", message());
}

#[test]
fn codes_have_names() {
    for code in SLABFS_ECANCELLED..=SLABFS_OK {
        // SAFETY: names are static strings.
        let name = unsafe { CStr::from_ptr(slabfs_error_name(code)) };
        assert!(name.to_str().unwrap().starts_with("SLABFS_"), "{code}");
    }
    // SAFETY: as above.
    let none = unsafe { CStr::from_ptr(slabfs_error_name(99)) };
    assert_eq!(none, c"unknown");
}

#[test]
fn invalid_handles_are_errors() {
    let (session, object, spec) = (
        slabfs_session { id: u64::MAX },
        slabfs_object { id: 0 },
        slabfs_spec { id: 7 << 40 },
    );
    let entries = slabfs_entries { id: 1 << 50 };
    let tags = slabfs_tags { id: 1 << 51 };
    let transfer = slabfs_transfer { id: 1 << 52 };
    let mut stat = std::mem::MaybeUninit::uninit();
    let mut count = 0;
    // SAFETY: all pointers are as the calls require.
    unsafe {
        for code in [
            slabfs_sync(session),
            slabfs_close(session),
            slabfs_remove(session, c"x".as_ptr()),
            slabfs_stat_path(session, c"x".as_ptr(), stat.as_mut_ptr()),
            slabfs_tag_put(session, 0, null()),
            slabfs_flush(object),
            slabfs_object_sync(object),
            slabfs_object_close(object),
            slabfs_object_stat(object, stat.as_mut_ptr()),
            slabfs_set_dims(object, 0, null()),
            slabfs_read_box(object, 0, null(), null(), null_mut(), 0, null()),
            slabfs_write_box(object, 0, null(), null(), null(), 0, null()),
            slabfs_spec_set(spec, c"dims".as_ptr(), c"1".as_ptr()),
            slabfs_spec_free(spec),
            slabfs_entries_count(entries, &mut count),
            slabfs_entries_free(entries),
            slabfs_tags_count(tags, &mut count),
            slabfs_tags_free(tags),
            slabfs_transfer_start(transfer),
            slabfs_transfer_wait(transfer),
            slabfs_transfer_cancel(transfer),
            slabfs_transfer_free(transfer),
        ] {
            assert_eq!(code, SLABFS_EHANDLE, "{}", message());
        }
    }
}

#[test]
fn null_and_excessive_lengths_are_errors() {
    let mut session = slabfs_session { id: 0 };
    let mut spec = slabfs_spec { id: 0 };
    let long = vec![b'x'; 1 << 20];
    let bad = [0xffu8, 0];
    // SAFETY: non-NULL strings are valid, or longer than the limit that is read.
    unsafe {
        assert_eq!(slabfs_spec_new(null_mut()), SLABFS_EINVALID);
        assert_eq!(slabfs_spec_new(&mut spec), SLABFS_OK);
        assert_eq!(
            slabfs_connect(null(), null(), &mut session),
            SLABFS_EINVALID
        );
        assert_eq!(
            slabfs_connect(c"x".as_ptr(), null(), null_mut()),
            SLABFS_EINVALID
        );
        let text = |bytes: &[u8]| bytes.as_ptr().cast::<c_char>();
        assert_eq!(
            slabfs_connect(text(&long), null(), &mut session),
            SLABFS_ETOOLARGE
        );
        assert_eq!(
            slabfs_connect(text(&bad), null(), &mut session),
            SLABFS_EINVALID
        );
        assert_eq!(
            slabfs_connect(c"/nowhere/at/all".as_ptr(), null(), &mut session),
            SLABFS_ENOTFOUND
        );
        assert!(message().contains("unix:PATH"), "{}", message());
        assert_eq!(slabfs_spec_dims(spec, 33, null()), SLABFS_ETOOLARGE);
        assert_eq!(slabfs_spec_dims(spec, usize::MAX, null()), SLABFS_ETOOLARGE);
        assert_eq!(slabfs_spec_dims(spec, 2, null()), SLABFS_EINVALID);
        assert_eq!(slabfs_spec_dims(spec, 0, null()), SLABFS_OK);
        assert_eq!(
            slabfs_spec_set(spec, c"colour".as_ptr(), c"red".as_ptr()),
            SLABFS_EINVALID
        );
        assert_eq!(
            slabfs_spec_set(spec, c"dtype".as_ptr(), null()),
            SLABFS_EINVALID
        );
        assert_eq!(slabfs_spec_tag(spec, null()), SLABFS_EINVALID);
        let options = slabfs_options {
            key_file: null(),
            host: null(),
            io_timeout_ms: 0,
            dirty_limit: 0,
            cache: 0,
            consistency: 9,
            read_only: 0,
            reserved: [0; 8],
        };
        let connected = slabfs_connect(c"unix:/none".as_ptr(), &options, &mut session);
        assert_eq!(connected, SLABFS_EINVALID);
        let later = slabfs_options {
            consistency: 0,
            reserved: [0, 1, 0, 0, 0, 0, 0, 0],
            ..options
        };
        let connected = slabfs_connect(c"unix:/none".as_ptr(), &later, &mut session);
        assert_eq!(connected, SLABFS_EINVALID);
        assert!(message().contains("reserved"), "{}", message());
    }
    assert_eq!(slabfs_spec_free(spec), SLABFS_OK);
    assert_eq!(slabfs_spec_free(spec), SLABFS_EHANDLE);
}

//! Tests of batches through the C library and through the calls of Galley, with three data servers: the documented
//! patterns and random trees against a byte-by-byte interpreter, and invalid batches.

use std::ffi::{c_char, c_int};
use std::mem::{offset_of, size_of};
use std::ptr::{null, null_mut};

use slabfs_model::batch::{Batch, Pattern, Place};

use super::stage::{InMemory, Laid, Stage, all, done, message};
use super::trees::{Door, patterns_go_through, repeated, trees_go_through};
use crate::*;

/// The objects of the tests, each of 4800 bytes or more: name, dims, dtype, element size, layout.
const FORMS: [(
    &std::ffi::CStr,
    &std::ffi::CStr,
    &std::ffi::CStr,
    u64,
    &std::ffi::CStr,
); 3] = [
    (c"plain", c"40,30", c"i4", 4, c"aligned"),
    (c"grid", c"40,30", c"i4", 4, c"grid:7,11"),
    (c"blocks", c"4900", c"u1", 1, c"grid:512"),
];

fn unit_of(unit: u64) -> u32 {
    match unit {
        1 => SLABFS_BYTES,
        _ => SLABFS_ELEMENTS,
    }
}

/// The blocking calls.
struct Blocking(slabfs_object);

impl Door for Blocking {
    fn read(&self, batches: &[Batch], unit: u64, into: &mut [u8]) -> Result<(), String> {
        let laid = Laid::<slabfs_batch>::out(batches);
        let (top, to) = (&laid.top, into.as_mut_ptr().cast());
        // SAFETY: the batch in memory is valid.
        done(unsafe {
            slabfs_read_batch(
                self.0,
                top.as_ptr(),
                top.len(),
                unit_of(unit),
                to,
                into.len(),
            )
        })
    }

    fn write(&self, batches: &[Batch], unit: u64, from: &[u8]) -> Result<(), String> {
        let laid = Laid::<slabfs_batch>::out(batches);
        let (top, at) = (&laid.top, from.as_ptr().cast());
        // SAFETY: as above.
        done(unsafe {
            slabfs_write_batch(
                self.0,
                top.as_ptr(),
                top.len(),
                unit_of(unit),
                at,
                from.len(),
            )
        })
    }

    fn all(&self) -> Vec<u8> {
        all(self.0)
    }
}

/// Transfers.
struct Started(slabfs_object);

fn run(transfer: slabfs_transfer) -> Result<(), String> {
    let started = done(slabfs_transfer_start(transfer));
    let waited = done(slabfs_transfer_wait(transfer));
    assert_eq!(done(slabfs_transfer_wait(transfer)), waited);
    done(slabfs_transfer_free(transfer)).unwrap();
    started.and(waited)
}

impl Door for Started {
    fn read(&self, batches: &[Batch], unit: u64, into: &mut [u8]) -> Result<(), String> {
        let mut transfer = slabfs_transfer { id: 0 };
        {
            let laid = Laid::<slabfs_batch>::out(batches);
            let (top, n) = (laid.top.as_ptr(), laid.top.len());
            let (to, len) = (into.as_mut_ptr().cast(), into.len());
            // SAFETY: the batch is valid, and the buffer until `run` has returned.
            done(unsafe {
                slabfs_transfer_read_batch(self.0, top, n, unit_of(unit), to, len, &mut transfer)
            })?;
        }
        run(transfer)
    }

    fn write(&self, batches: &[Batch], unit: u64, from: &[u8]) -> Result<(), String> {
        let mut transfer = slabfs_transfer { id: 0 };
        {
            let laid = Laid::<slabfs_batch>::out(batches);
            let (top, n) = (laid.top.as_ptr(), laid.top.len());
            let (at, len) = (from.as_ptr().cast(), from.len());
            // SAFETY: as above.
            done(unsafe {
                slabfs_transfer_write_batch(self.0, top, n, unit_of(unit), at, len, &mut transfer)
            })?;
        }
        run(transfer)
    }

    fn all(&self) -> Vec<u8> {
        all(self.0)
    }
}

/// The calls of Galley, blocking, or nonblocking with a handle.
struct Galley {
    object: slabfs_object,
    fork: c_int,
    handle: Option<c_int>,
}

impl Galley {
    fn of(object: slabfs_object, handle: Option<c_int>) -> Galley {
        let mut fork = 0;
        // SAFETY: writable memory.
        done(unsafe { slabfs_gfs_fork(object, &mut fork) }).unwrap();
        Galley {
            object,
            fork,
            handle,
        }
    }
}

impl Drop for Galley {
    fn drop(&mut self) {
        assert_eq!(slabfs_gfs_close(self.fork), SLABFS_OK);
        assert_eq!(slabfs_gfs_close(self.fork), SLABFS_EHANDLE);
    }
}

fn begun(handle: c_int, code: c_int) -> Result<(), String> {
    done(code)?;
    while gfs_test(handle) == 0 {
        std::thread::yield_now();
    }
    assert!(gfs_test(handle) == 1);
    done(gfs_wait(handle))
}

impl Door for Galley {
    fn read(&self, batches: &[Batch], unit: u64, into: &mut [u8]) -> Result<(), String> {
        assert_eq!(unit, 1);
        let laid = Laid::<gfs_batch>::out(batches);
        let (top, n) = (laid.top.as_ptr(), laid.top.len() as c_int);
        let to = into.as_mut_ptr().cast();
        // SAFETY: the batch is valid, and the buffer is as long as it reaches.
        unsafe {
            match self.handle {
                None => done(gfs_read_batched(self.fork, to, top, n)),
                Some(handle) => begun(handle, gfs_nb_read_batched(handle, self.fork, to, top, n)),
            }
        }
    }

    fn write(&self, batches: &[Batch], unit: u64, from: &[u8]) -> Result<(), String> {
        assert_eq!(unit, 1);
        let laid = Laid::<gfs_batch>::out(batches);
        let (top, n) = (laid.top.as_ptr(), laid.top.len() as c_int);
        let at = from.as_ptr().cast();
        // SAFETY: as above.
        unsafe {
            match self.handle {
                None => done(gfs_write_batched(self.fork, at, top, n)),
                Some(handle) => begun(handle, gfs_nb_write_batched(handle, self.fork, at, top, n)),
            }
        }
    }

    fn all(&self) -> Vec<u8> {
        all(self.object)
    }
}

/// Runs a test through every interface to each object; Galley's counts in bytes only. Handles are per process.
fn through_all(stage: &Stage, handle: c_int, each: &dyn Fn(&dyn Door, u64, &str)) {
    for (name, dims, dtype, elem, layout) in FORMS {
        let object = stage.object(name, dims, dtype, layout);
        let name = name.to_str().unwrap();
        each(&Blocking(object), elem, &format!("{name}, blocking"));
        each(&Started(object), elem, &format!("{name}, transfers"));
        each(&Galley::of(object, None), 1, &format!("{name}, gfs"));
        each(
            &Galley::of(object, Some(handle)),
            1,
            &format!("{name}, gfs nonblocking"),
        );
        done(slabfs_object_close(object)).unwrap();
    }
}

#[test]
fn patterns_of_the_document() {
    let stage = Stage::open();
    through_all(&stage, 100, &|door, _, what| {
        patterns_go_through(door, what)
    });
    stage.close();
}

/// `PROPTEST_CASES` sets the number of cases, as in `tools/soak`.
#[test]
fn random_trees() {
    let stage = Stage::open();
    through_all(&stage, 200, &|door, elem, what| {
        trees_go_through(door, elem, 100, what);
    });
    stage.close();
}

#[test]
fn any_number_of_pieces_takes_one_message_per_server() {
    let stage = Stage::open();
    let object = stage.object(c"a", c"3000000", c"u1", c"grid:100000");
    let every = |count: u64, stride: i64| {
        let batch = repeated(
            Place::at(1).every(stride),
            Place::at(0).every(1),
            count,
            Pattern::Data(1),
        );
        Laid::<slabfs_batch>::out(&[batch])
    };
    // Write everything, so that every server holds data.
    let mut buffer = vec![5u8; 3_000_000];
    let start = buffer.as_ptr().cast();
    // SAFETY: it has that length.
    done(unsafe { slabfs_write_text(object, c"[...]".as_ptr(), start, buffer.len()) }).unwrap();
    done(slabfs_flush(object)).unwrap();
    for (count, stride) in [(30, 100_000), (3000, 1000), (1_499_999, 2)] {
        let laid = every(count, stride);
        let top = laid.top.as_ptr();
        let (reads, writes) = ("/counters/read/messages", "/counters/write/messages");
        let before = (stage.number(reads), stage.number(writes));
        let (to, len) = (buffer.as_mut_ptr().cast(), buffer.len());
        // SAFETY: the batch in memory is valid.
        unsafe {
            done(slabfs_read_batch(object, top, 1, SLABFS_BYTES, to, len)).unwrap();
            done(slabfs_write_batch(
                object,
                top,
                1,
                SLABFS_ELEMENTS,
                to.cast_const(),
                len,
            ))
            .unwrap();
        }
        let after = (stage.number(reads), stage.number(writes));
        assert_eq!(
            (after.0 - before.0, after.1 - before.1),
            (3, 3),
            "{count} pieces"
        );
    }
    done(slabfs_object_close(object)).unwrap();
    stage.close();
}

#[test]
fn the_structures_are_those_of_the_headers() {
    assert_eq!(size_of::<slabfs_batch>(), 64);
    assert_eq!(offset_of!(slabfs_batch, f_absolute), 16);
    assert_eq!(offset_of!(slabfs_batch, sub_vector), 18);
    assert_eq!(offset_of!(slabfs_batch, quant), 24);
    assert_eq!(offset_of!(slabfs_batch, sub), 56);
    assert_eq!(size_of::<gfs_batch>(), 40);
    assert_eq!(offset_of!(gfs_batch, sub_vector), 10);
    assert_eq!(offset_of!(gfs_batch, quant), 12);
    assert_eq!(offset_of!(gfs_batch, subvec_len), 24);
    assert_eq!(offset_of!(gfs_batch, sub), 32);
}

/// The elements of the last error, as a C program gets them.
fn elements() -> Vec<Vec<u32>> {
    let path = |which| {
        let mut path = [9; 4];
        // SAFETY: `room` is 4, then 0.
        let len = unsafe {
            assert_eq!(
                slabfs_error_element(which, null_mut(), 0),
                slabfs_error_element(which, path.as_mut_ptr(), 4)
            );
            slabfs_error_element(which, path.as_mut_ptr(), 4)
        };
        assert!(path[len..].iter().all(|&index| index == 9));
        path[..len].to_vec()
    };
    let named: Vec<_> = (0..2).map(path).filter(|path| !path.is_empty()).collect();
    assert!(path(2).is_empty());
    named
}

#[test]
fn errors_name_the_path_of_an_element() {
    let stage = Stage::open();
    let object = stage.object(c"a", c"64", c"u1", c"aligned");
    let mut buffer = [9u8; 16];
    let mut refused = |batches: &[Batch], expected: &[Vec<u32>]| {
        let laid = Laid::<slabfs_batch>::out(batches);
        let (top, n) = (laid.top.as_ptr(), laid.top.len());
        let to = buffer.as_mut_ptr().cast();
        let mut transfer = slabfs_transfer { id: 0 };
        // SAFETY: the batch in memory is valid.
        unsafe {
            let code = slabfs_read_batch(object, top, n, SLABFS_BYTES, to, 16);
            assert_eq!((code, &elements()[..]), (SLABFS_EINVALID, expected));
            let code =
                slabfs_transfer_read_batch(object, top, n, SLABFS_BYTES, to, 16, &mut transfer);
            assert_eq!((code, &elements()[..]), (SLABFS_EINVALID, expected));
        }
    };
    let vector = |below| repeated(Place::after(0), Place::after(0), 1, Pattern::Vector(below));
    let data = |file, memory| Batch::data(Place::at(file), Place::at(memory), 4);
    refused(
        &[data(0, 0), vector(vec![data(1, 4), data(-2, 8)])],
        &[vec![1, 1]],
    );
    refused(
        &[data(0, 0), vector(vec![data(1, 2)])],
        &[vec![0], vec![1, 0]],
    );
    // A NULL vector.
    let mut below = slabfs_batch::of(&data(0, 0), None);
    below.sub_vector = 1;
    below.subvec_len = 3;
    below.sub.subvec = null();
    let top = [slabfs_batch::of(&data(0, 0), None), below];
    let to = buffer.as_mut_ptr().cast();
    // SAFETY: as above; an invalid vector is not read.
    let code = unsafe { slabfs_read_batch(object, top.as_ptr(), 2, SLABFS_BYTES, to, 16) };
    assert_eq!(
        (code, elements()),
        (SLABFS_EINVALID, vec![vec![1]]),
        "{}",
        message()
    );
    done(slabfs_flush(object)).unwrap();
    assert!(elements().is_empty());
    done(slabfs_object_close(object)).unwrap();
    stage.close();
}

#[test]
fn invalid_batches_are_refused() {
    let stage = Stage::open();
    let object = stage.object(c"a", c"64", c"u1", c"aligned");
    let mut buffer = [9u8; 16];
    let to = buffer.as_mut_ptr().cast();
    let refused = |top: *const slabfs_batch, n: usize, unit: u32, code: i32, says: &str| {
        let mut transfer = slabfs_transfer { id: 0 };
        // SAFETY: an invalid vector is not read.
        unsafe {
            assert_eq!(
                slabfs_read_batch(object, top, n, unit, to, 16),
                code,
                "{}",
                message()
            );
            assert!(message().contains(says), "{}", message());
            assert_eq!(
                slabfs_write_batch(object, top, n, unit, to.cast_const(), 16),
                code
            );
            assert!(message().contains(says), "{}", message());
            let made = slabfs_transfer_read_batch(object, top, n, unit, to, 16, &mut transfer);
            assert_eq!((made, transfer.id), (code, 0));
            let from = to.cast_const();
            let made = slabfs_transfer_write_batch(object, top, n, unit, from, 16, &mut transfer);
            assert_eq!((made, transfer.id), (code, 0));
        }
    };
    let one = |size| slabfs_batch::of(&Batch::data(Place::at(0), Place::at(0), size), None);
    let good = one(1);
    refused(null(), 1, 0, SLABFS_EINVALID, "the batch is at");
    refused(&good, usize::MAX, 0, SLABFS_ETOOLARGE, "65536");
    refused(&good, 1, 7, SLABFS_EINVALID, "SLABFS_ELEMENTS");
    refused(
        &one(17),
        1,
        0,
        SLABFS_EINVALID,
        "byte 17 of a buffer that has 16",
    );
    refused(&one(u64::MAX), 1, 0, SLABFS_EINVALID, "element 0");
    let mut vector = [
        one(1),
        slabfs_batch {
            sub_vector: 1,
            subvec_len: 3,
            sub: slabfs_batch_sub { subvec: null() },
            ..good
        },
    ];
    refused(vector.as_ptr(), 2, 0, SLABFS_EINVALID, "element 1");
    // Vectors that contain themselves, once and twice.
    for len in [1, 2] {
        let inside = vector.as_ptr();
        vector[1].sub = slabfs_batch_sub {
            subvec: inside.wrapping_add(2 - len as usize),
        };
        vector[1].subvec_len = len;
        refused(vector.as_ptr(), 2, 0, SLABFS_ETOOLARGE, "at most");
    }
    vector[1].sub = slabfs_batch_sub {
        subvec: vector.as_ptr().wrapping_byte_add(1),
    };
    refused(vector.as_ptr(), 2, 0, SLABFS_EINVALID, "invalid address");
    vector[1].subvec_len = u64::MAX;
    refused(vector.as_ptr(), 2, 0, SLABFS_ETOOLARGE, "at most 65536");

    // Overlaps are refused for reads, with the elements named.
    let over = [one(4), slabfs_batch { m_off: 3, ..one(4) }];
    // SAFETY: the batches are valid.
    unsafe {
        assert_eq!(
            slabfs_read_batch(object, over.as_ptr(), 2, 0, to, 16),
            SLABFS_EINVALID
        );
        assert!(message().contains("elements 0 and 1"), "{}", message());
        assert_eq!(
            slabfs_read_batch(object, &good, 1, 0, null_mut(), 1),
            SLABFS_EINVALID
        );
        assert_eq!(
            slabfs_write_batch(object, over.as_ptr(), 2, 0, to.cast_const(), 16),
            SLABFS_OK
        );
        let none = slabfs_object { id: 0 };
        assert_eq!(slabfs_read_batch(none, &good, 1, 0, to, 16), SLABFS_EHANDLE);
        let made = slabfs_transfer_read_batch(object, &good, 1, 0, to, 16, null_mut());
        assert_eq!(made, SLABFS_EINVALID);
    }
    assert_eq!(buffer, [9; 16]);
    done(slabfs_object_close(object)).unwrap();
    stage.close();
}

#[test]
fn invalid_calls_of_galley_are_refused() {
    const HANDLE: c_int = 300;
    let stage = Stage::open();
    let object = stage.object(c"a", c"64", c"u1", c"aligned");
    let mut fork = 0;
    let mut buf = [9 as c_char; 8];
    let one = gfs_batch::of(&Batch::data(Place::at(0), Place::at(0), 8), None);
    // SAFETY: all pointers are valid.
    unsafe {
        assert_eq!(slabfs_gfs_fork(object, null_mut()), SLABFS_EINVALID);
        assert_eq!(
            slabfs_gfs_fork(slabfs_object { id: 0 }, &mut fork),
            SLABFS_EHANDLE
        );
        assert_eq!(slabfs_gfs_fork(object, &mut fork), SLABFS_OK);
        // The fork holds the object open.
        done(slabfs_object_close(object)).unwrap();
        let to = buf.as_mut_ptr();
        assert_eq!(gfs_read_batched(-1, to, &one, 1), SLABFS_EHANDLE);
        assert_eq!(gfs_read_batched(fork, to, &one, -1), SLABFS_EINVALID);
        assert_eq!(gfs_read_batched(fork, to, null(), 2), SLABFS_EINVALID);
        assert_eq!(gfs_read_batched(fork, null_mut(), &one, 1), SLABFS_EINVALID);
        assert_eq!(gfs_read_batched(fork, to, null(), 0), SLABFS_OK);
        for (wrong, says) in [
            (gfs_batch { quant: -1, ..one }, "quant of -1"),
            (
                gfs_batch {
                    sub: gfs_batch_sub { size: -8 },
                    ..one
                },
                "size of -8",
            ),
            (
                gfs_batch {
                    sub_vector: 1,
                    subvec_len: -2,
                    ..one
                },
                "subvec_len of -2",
            ),
            (gfs_batch { m_off: -2, ..one }, "the buffer"),
            (gfs_batch { f_off: 60, ..one }, "byte 68"),
        ] {
            assert_eq!(gfs_read_batched(fork, to, &wrong, 1), SLABFS_EINVALID);
            assert!(message().contains(says), "{}", message());
        }
        assert_eq!(gfs_wait(HANDLE), SLABFS_EHANDLE);
        assert_eq!(gfs_test(HANDLE), SLABFS_EHANDLE);
        assert_eq!(gfs_nb_read_batched(HANDLE, fork, to, &one, 1), SLABFS_OK);
        let again = gfs_nb_write_batched(HANDLE, fork, to, &one, 1);
        assert_eq!(again, SLABFS_EBUSY, "{}", message());
        assert_eq!(gfs_wait(HANDLE), SLABFS_OK);
        assert_eq!(buf, [7; 8]);
        // `gfs_wait` returns errors that occur during the request, and frees the handle.
        let beyond = gfs_batch { f_off: 60, ..one };
        let to = buf.as_mut_ptr();
        assert_eq!(
            gfs_nb_write_batched(HANDLE, fork, to, &beyond, 1),
            SLABFS_OK
        );
        assert_eq!(gfs_wait(HANDLE), SLABFS_ETOOLARGE);
        assert_eq!(gfs_wait(HANDLE), SLABFS_EHANDLE);
    }
    assert_eq!(slabfs_gfs_close(fork), SLABFS_OK);
    stage.close();
}

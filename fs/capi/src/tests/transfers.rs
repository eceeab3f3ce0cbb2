//! Tests of transfers through the C library: memory layouts, stable results, and threads that start, cancel and free
//! transfers that others wait for.

use std::ptr::{null, null_mut};

use slabfs_model::batch::{Batch, Place};

use super::stage::{InMemory, Stage, all, done, message};
use crate::*;

const NONE: slabfs_transfer = slabfs_transfer { id: 0 };

fn memory() -> slabfs_memory {
    slabfs_memory {
        offset: 0,
        rank: 0,
        shape: null(),
        strides: null(),
        dtype: null(),
        reserved: [0; 4],
    }
}

#[test]
fn all_memory_layouts_read_and_write_an_object() {
    let stage = Stage::open();
    let object = stage.object(c"a", c"4,6", c"i2", c"aligned");
    let (start, count) = ([1u64, 0], [2u64, 3]);
    let slab = slabfs_slab {
        rank: 2,
        start: start.as_ptr(),
        stride: null(),
        count: count.as_ptr(),
        block: null(),
    };
    // Doubles in Fortran order, from the second column of a 3 x 4 array on: element (i, j) at 24 + 8 i + 24 j.
    let fortran: Vec<f64> = (0..12).map(f64::from).collect();
    let strides = [8u64, 24];
    let described = slabfs_memory {
        offset: 24,
        rank: 2,
        strides: strides.as_ptr(),
        dtype: c"f8".as_ptr(),
        ..memory()
    };
    let mut transfer = NONE;
    let (from, len) = (fortran.as_ptr().cast(), 96);
    // SAFETY: all pointers are valid until the end of the test.
    unsafe {
        done(slabfs_transfer_write(
            object,
            &slab,
            from,
            len,
            &described,
            &mut transfer,
        ))
        .unwrap();
        let mut ended = 9;
        done(slabfs_transfer_test(transfer, &mut ended)).unwrap();
        assert_eq!(ended, 0);
        done(slabfs_transfer_wait(transfer)).unwrap();
        done(slabfs_transfer_test(transfer, &mut ended)).unwrap();
        assert_eq!(ended, 1);
    }
    done(slabfs_transfer_start(transfer)).unwrap();
    done(slabfs_transfer_free(transfer)).unwrap();
    assert_eq!(slabfs_transfer_wait(transfer), SLABFS_EHANDLE);
    let values: Vec<i16> = all(object)
        .chunks_exact(2)
        .map(|two| i16::from_le_bytes([two[0], two[1]]))
        .collect();
    assert_eq!(values[6..12], [3, 6, 9, 7, 7, 7]);
    assert_eq!(values[12..18], [4, 7, 10, 7, 7, 7]);

    // All of it into a row of another shape.
    let mut row = [0i32; 24];
    let (shape, strides) = ([4u64, 2, 3], [24u64, 12, 4]);
    let described = slabfs_memory {
        rank: 3,
        shape: shape.as_ptr(),
        strides: strides.as_ptr(),
        dtype: c"i4".as_ptr(),
        ..memory()
    };
    let to = row.as_mut_ptr().cast();
    // SAFETY: as above.
    unsafe {
        done(slabfs_transfer_read(
            object,
            null(),
            to,
            96,
            &described,
            &mut transfer,
        ))
        .unwrap();
        done(slabfs_transfer_wait_all(1, &transfer)).unwrap();
        done(slabfs_transfer_free(transfer)).unwrap();
        assert_eq!(row.map(|value| value as i16), values[..]);
        for (wrong, says) in [
            (
                slabfs_memory {
                    offset: 97,
                    ..memory()
                },
                "97",
            ),
            (
                slabfs_memory {
                    offset: 1,
                    ..memory()
                },
                "95",
            ),
            (
                slabfs_memory {
                    dtype: c"x9".as_ptr(),
                    ..memory()
                },
                "dtype",
            ),
            (
                slabfs_memory {
                    reserved: [0, 0, 0, 1],
                    ..memory()
                },
                "reserved",
            ),
            (
                slabfs_memory {
                    rank: 2,
                    strides: strides.as_ptr(),
                    ..memory()
                },
                "stride",
            ),
            (
                slabfs_memory {
                    rank: 33,
                    strides: strides.as_ptr(),
                    ..memory()
                },
                "33",
            ),
        ] {
            let mut none = NONE;
            let code = slabfs_transfer_read(object, null(), to, 96, &wrong, &mut none);
            assert!(code < 0 && none.id == 0);
            assert!(message().contains(says), "{says}: {}", message());
        }
        let made = slabfs_transfer_read(object, null(), null_mut(), 96, null(), &mut transfer);
        assert_eq!(made, SLABFS_EINVALID);
    }
    done(slabfs_object_close(object)).unwrap();
    stage.close();
}

#[test]
fn many_transfers_are_started_together() {
    let stage = Stage::open();
    let object = stage.object(c"a", c"64,64", c"u1", c"aligned");
    let rows: Vec<[u8; 64]> = (0..64u8).map(|row| [row; 64]).collect();
    let mut back = vec![[0u8; 64]; 64];
    let mut transfers = Vec::new();
    let count = [1u64, 64];
    let starts: Vec<[u64; 2]> = (0..64).map(|row| [row, 0]).collect();
    for n in 0..128 {
        let row = n % 64;
        let slab = slabfs_slab {
            rank: 2,
            start: starts[row].as_ptr(),
            stride: null(),
            count: count.as_ptr(),
            block: null(),
        };
        let mut transfer = NONE;
        // Every third is a batch.
        let at = Place::at(row as i64 * 64);
        let batch = slabfs_batch::of(&Batch::data(at, Place::at(0), 64), None);
        let (from, to) = (rows[row].as_ptr().cast(), back[row].as_mut_ptr().cast());
        let bytes = SLABFS_BYTES;
        // SAFETY: the buffers are valid until all have ended.
        done(unsafe {
            match (n < 64, n % 3 > 0) {
                (true, true) => {
                    slabfs_transfer_write(object, &slab, from, 64, null(), &mut transfer)
                }
                (true, false) => {
                    slabfs_transfer_write_batch(object, &batch, 1, bytes, from, 64, &mut transfer)
                }
                (false, true) => slabfs_transfer_read(object, &slab, to, 64, null(), &mut transfer),
                (false, false) => {
                    slabfs_transfer_read_batch(object, &batch, 1, bytes, to, 64, &mut transfer)
                }
            }
        })
        .unwrap();
        transfers.push(transfer);
    }
    let (writes, reads) = transfers.split_at(64);
    let before = stage.number("/counters/messages");
    // SAFETY: lists of their length.
    unsafe {
        done(slabfs_transfer_start_all(64, writes.as_ptr())).unwrap();
        done(slabfs_transfer_wait_all(64, writes.as_ptr())).unwrap();
        done(slabfs_transfer_wait_all(64, reads.as_ptr())).unwrap();
    }
    let messages = stage.number("/counters/messages") - before;
    assert!(
        messages <= 6,
        "{messages} messages for 128 transfers over 3 servers"
    );
    assert!(back == rows);
    // The error names its transfer, and the others have ended too.
    done(slabfs_transfer_free(transfers[5])).unwrap();
    // SAFETY: as above.
    unsafe {
        assert_eq!(
            slabfs_transfer_start_all(128, transfers.as_ptr()),
            SLABFS_EHANDLE
        );
        assert_eq!(slabfs_error_index(), 5);
        assert_eq!(
            slabfs_transfer_wait_all(usize::MAX, transfers.as_ptr()),
            SLABFS_ETOOLARGE
        );
        assert_eq!(slabfs_transfer_wait_all(2, null()), SLABFS_EINVALID);
        done(slabfs_transfer_wait_all(0, null())).unwrap();
    }
    transfers.remove(5);
    for transfer in transfers {
        done(slabfs_transfer_free(transfer)).unwrap();
    }
    stage.has_no_transfers();
    done(slabfs_object_close(object)).unwrap();
    stage.close();
}

/// Each of many threads makes transfers and frees, cancels or waits for them in any state; others wait for the same.
#[test]
fn freeing_in_any_state_ends_them() {
    let stage = Stage::open();
    let object = stage.object(c"a", c"1048576", c"u1", c"aligned");
    std::thread::scope(|threads| {
        for thread in 0..8u64 {
            threads.spawn(move || {
                for round in 0..20 {
                    let mut buffer = vec![round as u8; 4096];
                    let (start, count) = ([thread * 4096], [4096]);
                    let slab = slabfs_slab {
                        rank: 1,
                        start: start.as_ptr(),
                        stride: null(),
                        count: count.as_ptr(),
                        block: null(),
                    };
                    let mut transfer = NONE;
                    let at = Place::at(start[0] as i64);
                    let batch = slabfs_batch::of(&Batch::data(at, Place::at(0), 4096), None);
                    let to = buffer.as_mut_ptr().cast();
                    // SAFETY: the buffer is valid until the transfer was freed.
                    done(unsafe {
                        match round % 4 {
                            2 => slabfs_transfer_read_batch(
                                object,
                                &batch,
                                1,
                                SLABFS_BYTES,
                                to,
                                4096,
                                &mut transfer,
                            ),
                            3 => slabfs_transfer_write_batch(
                                object,
                                &batch,
                                1,
                                SLABFS_BYTES,
                                to.cast_const(),
                                4096,
                                &mut transfer,
                            ),
                            0 => {
                                slabfs_transfer_read(object, &slab, to, 4096, null(), &mut transfer)
                            }
                            _ => slabfs_transfer_write(
                                object,
                                &slab,
                                to.cast_const(),
                                4096,
                                null(),
                                &mut transfer,
                            ),
                        }
                    })
                    .unwrap();
                    if (thread + round) % 5 > 0 {
                        done(slabfs_transfer_start(transfer)).unwrap();
                    }
                    let waits = std::thread::spawn(move || slabfs_transfer_wait(transfer));
                    if (thread + round) % 3 == 0 {
                        done(slabfs_transfer_cancel(transfer)).unwrap();
                    }
                    if (thread + round) % 4 == 0 {
                        let code = slabfs_transfer_wait(transfer);
                        assert!(
                            code == SLABFS_OK || code == SLABFS_ECANCELLED,
                            "{}",
                            message()
                        );
                    }
                    done(slabfs_transfer_free(transfer)).unwrap();
                    // From here on this thread owns the buffer, even if others still wait.
                    buffer.fill(1);
                    let code = waits.join().unwrap();
                    let known = [SLABFS_OK, SLABFS_ECANCELLED, SLABFS_EHANDLE];
                    assert!(known.contains(&code), "{code}");
                }
            });
        }
    });
    stage.has_no_transfers();
    done(slabfs_object_close(object)).unwrap();
    stage.close();
}

#[test]
fn transfers_end_when_their_object_or_session_closes() {
    let stage = Stage::open();
    let object = stage.object(c"a", c"64", c"u1", c"aligned");
    let mut buffer = [0u8; 64];
    let mut made = || {
        let mut transfer = NONE;
        let to = buffer.as_mut_ptr().cast();
        // SAFETY: the buffer is valid until all were freed.
        done(unsafe { slabfs_transfer_read(object, null(), to, 64, null(), &mut transfer) })
            .unwrap();
        transfer
    };
    let (started, created, late) = (made(), made(), made());
    done(slabfs_transfer_start(started)).unwrap();
    done(slabfs_object_close(object)).unwrap();
    let mut ended = 0;
    // SAFETY: writable memory.
    done(unsafe { slabfs_transfer_test(started, &mut ended) }).unwrap();
    assert_eq!(ended, 1);
    done(slabfs_transfer_wait(started)).unwrap();
    assert!(slabfs_transfer_wait(created) < 0);
    done(slabfs_transfer_free(started)).unwrap();
    done(slabfs_transfer_free(created)).unwrap();
    stage.close();
    assert!(slabfs_transfer_start(late) < 0);
    assert!(message().starts_with("a: "), "{}", message());
    assert!(slabfs_transfer_wait(late) < 0);
    done(slabfs_transfer_free(late)).unwrap();
    assert_eq!(slabfs_transfer_free(late), SLABFS_EHANDLE);
}

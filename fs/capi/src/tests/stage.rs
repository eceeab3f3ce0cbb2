//! Test support: a filesystem over sockets with three data servers, and batches in a program's memory.

use std::ffi::{CStr, CString, c_char};
use std::ptr::null;

use slabfs_model::batch::{Batch, Pattern};

use super::sockets::Cluster;
use crate::handles::SESSIONS;
use crate::*;

pub(super) fn message() -> String {
    // SAFETY: the string is valid until the next call of this thread.
    let text = unsafe { CStr::from_ptr(slabfs_error()) };
    text.to_str().unwrap().to_owned()
}

/// The outcome of a call as a `Result`.
pub(super) fn done(code: i32) -> Result<(), String> {
    match code {
        SLABFS_OK => Ok(()),
        _ => Err(message()),
    }
}

pub(super) struct Stage {
    pub(super) session: slabfs_session,
    cluster: Cluster,
    _dir: tempfile::TempDir,
}

impl Stage {
    pub(super) fn open() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        let cluster = Cluster::open(dir.path(), 3);
        let place = CString::new(cluster.place()).unwrap();
        let mut session = slabfs_session { id: 0 };
        // SAFETY: a string and writable memory.
        done(unsafe { slabfs_connect(place.as_ptr(), null(), &mut session) }).unwrap();
        Stage {
            session,
            cluster,
            _dir: dir,
        }
    }

    /// Creates an object, open for reading and writing.
    pub(super) fn object(
        &self,
        name: &CStr,
        dims: &CStr,
        dtype: &CStr,
        layout: &CStr,
    ) -> slabfs_object {
        let mut spec = slabfs_spec { id: 0 };
        let mut object = slabfs_object { id: 0 };
        // SAFETY: strings and writable memory.
        unsafe {
            done(slabfs_spec_new(&mut spec)).unwrap();
            for (key, text) in [
                (c"dims", dims),
                (c"dtype", dtype),
                (c"layout", layout),
                (c"fill", c"7"),
            ] {
                done(slabfs_spec_set(spec, key.as_ptr(), text.as_ptr())).unwrap();
            }
            done(slabfs_create(
                self.session,
                name.as_ptr(),
                spec,
                &mut object,
            ))
            .unwrap();
        }
        done(slabfs_spec_free(spec)).unwrap();
        object
    }

    /// A value of the session's counters.
    pub(super) fn number(&self, pointer: &str) -> u64 {
        let Ok(session) = SESSIONS.get(self.session.id) else {
            panic!("the session is closed")
        };
        session.stats().pointer(pointer).unwrap().as_u64().unwrap()
    }

    /// Checks that no freed transfers remain; the thread that ended the last one may hold it for a moment.
    pub(super) fn has_no_transfers(&self) {
        assert_eq!(self.number("/transfers_running"), 0);
        let begun = std::time::Instant::now();
        while self.number("/transfers") > 0 {
            assert!(begun.elapsed().as_secs() < 20, "transfers are left");
            std::thread::yield_now();
        }
    }

    pub(super) fn close(self) {
        done(slabfs_close(self.session)).unwrap();
        self.cluster.close();
    }
}

/// All bytes of an object.
pub(super) fn all(object: slabfs_object) -> Vec<u8> {
    let mut stat = std::mem::MaybeUninit::uninit();
    // SAFETY: writable memory, which was filled; a buffer of its length.
    unsafe {
        done(slabfs_object_stat(object, stat.as_mut_ptr())).unwrap();
        let mut bytes = vec![0; stat.assume_init().size as usize];
        let (start, len) = (bytes.as_mut_ptr().cast(), bytes.len());
        done(slabfs_read_text(object, c"[...]".as_ptr(), start, len)).unwrap();
        bytes
    }
}

/// A batch element in a program's memory.
pub(super) trait InMemory: Sized {
    /// `below` is the vector that it repeats, if any.
    fn of(batch: &Batch, below: Option<&[Self]>) -> Self;
}

impl InMemory for slabfs_batch {
    fn of(batch: &Batch, below: Option<&[slabfs_batch]>) -> slabfs_batch {
        slabfs_batch {
            f_off: batch.file.offset,
            m_off: batch.memory.offset,
            f_absolute: batch.file.absolute.into(),
            m_absolute: u8::from(batch.memory.absolute) * 7,
            sub_vector: below.is_some().into(),
            quant: batch.count,
            f_stride: batch.file.stride,
            m_stride: batch.memory.stride,
            subvec_len: below.map_or(0, |below| below.len() as u64),
            sub: match (below, &batch.pattern) {
                (Some(below), _) => slabfs_batch_sub {
                    subvec: below.as_ptr(),
                },
                (None, Pattern::Data(size)) => slabfs_batch_sub { size: *size },
                (None, Pattern::Vector(_)) => unreachable!("it has a vector"),
            },
        }
    }
}

impl InMemory for gfs_batch {
    fn of(batch: &Batch, below: Option<&[gfs_batch]>) -> gfs_batch {
        let number = |value: i64| i32::try_from(value).unwrap();
        gfs_batch {
            f_off: number(batch.file.offset),
            m_off: number(batch.memory.offset),
            f_absolute: c_char::from(batch.file.absolute),
            m_absolute: c_char::from(batch.memory.absolute),
            sub_vector: c_char::from(below.is_some()),
            quant: number(batch.count as i64),
            f_stride: number(batch.file.stride),
            m_stride: number(batch.memory.stride),
            subvec_len: below.map_or(0, |below| below.len() as i32),
            sub: match (below, &batch.pattern) {
                (Some(below), _) => gfs_batch_sub {
                    subvec: below.as_ptr(),
                },
                (None, Pattern::Data(size)) => gfs_batch_sub {
                    size: number(*size as i64),
                },
                (None, Pattern::Vector(_)) => unreachable!("it has a vector"),
            },
        }
    }
}

/// A batch in a program's memory: the outermost vector, and those below.
pub(super) struct Laid<E> {
    pub(super) top: Vec<E>,
    below: Vec<Vec<E>>,
}

impl<E: InMemory> Laid<E> {
    pub(super) fn out(batches: &[Batch]) -> Laid<E> {
        let mut laid = Laid {
            top: Vec::new(),
            below: Vec::new(),
        };
        laid.top = laid.vector(batches);
        laid
    }

    fn vector(&mut self, batches: &[Batch]) -> Vec<E> {
        let each = |batch: &Batch| match &batch.pattern {
            Pattern::Data(_) => E::of(batch, None),
            Pattern::Vector(inner) => {
                let inner = self.vector(inner);
                let one = E::of(batch, Some(&inner));
                // Moving the vector does not move its elements.
                self.below.push(inner);
                one
            }
        };
        batches.iter().map(each).collect()
    }
}

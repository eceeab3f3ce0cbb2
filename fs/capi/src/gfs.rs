//! The batched interface of the Galley parallel file system (`include/gfs_compat.h`, which is written by hand).
//!
//! Forks are open objects with small numbers. Handles of nonblocking requests are numbers that the program chooses;
//! each has at most one request, from the call that begins it to `gfs_wait`. Galley's 32-bit batches are converted to
//! 64 bits. Buffers have no length there: a buffer is as long as the request reaches.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int};
use std::sync::Arc;

use parking_lot::Mutex;
use slabfs_fs::session::{Batch, Object, Place, Unit};
use slabfs_model::batch::Plan;

use crate::argument::{bytes, bytes_mut, result};
use crate::batch::{Element, Read, Repeats, batches};
use crate::error::{Failure, SLABFS_EBUSY, SLABFS_EHANDLE, SLABFS_OK, call};
use crate::handles::{OBJECTS, slabfs_object};
use crate::pending::{Borrowed, Pending};
use crate::process::Own;

/// See `gfs_compat.h`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct gfs_batch {
    /// Offset in the fork.
    pub f_off: i32,
    /// Offset in memory.
    pub m_off: i32,
    /// Not 0: `f_off` counts from the start of the fork.
    pub f_absolute: c_char,
    /// Not 0: `m_off` counts from the start of the buffer.
    pub m_absolute: c_char,
    /// Not 0: a vector is repeated.
    pub sub_vector: c_char,
    /// The number of repetitions.
    pub quant: i32,
    /// The distance of repetitions in the fork.
    pub f_stride: i32,
    /// The distance of repetitions in memory.
    pub m_stride: i32,
    /// Elements of the vector.
    pub subvec_len: i32,
    /// The repeated piece or vector.
    pub sub: gfs_batch_sub,
}

/// The repeated part of a batch element.
#[repr(C)]
#[derive(Clone, Copy)]
pub union gfs_batch_sub {
    /// The number of bytes.
    pub size: i32,
    /// A vector.
    pub subvec: *const gfs_batch,
}

impl Element for gfs_batch {
    unsafe fn read(&self) -> Result<Read<gfs_batch>, String> {
        let count = |value: i32, what: &str| {
            u64::try_from(value).map_err(|_| format!("has a {what} of {value}"))
        };
        // SAFETY: the caller's.
        let repeats = unsafe {
            match self.sub_vector {
                0 => Repeats::Data(count(self.sub.size, "size")?),
                _ => Repeats::Vector(self.sub.subvec, count(self.subvec_len, "subvec_len")?),
            }
        };
        let place = |offset: i32, absolute: c_char, stride: i32| Place {
            offset: offset.into(),
            absolute: absolute != 0,
            stride: stride.into(),
        };
        Ok(Read {
            file: place(self.f_off, self.f_absolute, self.f_stride),
            memory: place(self.m_off, self.m_absolute, self.m_stride),
            count: count(self.quant, "quant")?,
            repeats,
        })
    }
}

/// Open objects by fork number.
static FORKS: Own<Mutex<BTreeMap<c_int, Arc<Object>>>> = Own::new();
/// Requests by handle.
static REQUESTS: Own<Mutex<BTreeMap<c_int, Arc<Pending>>>> = Own::new();

fn fork(fork_id: c_int) -> Result<Arc<Object>, Failure> {
    let found = FORKS.here().lock().get(&fork_id).cloned();
    found.ok_or_else(|| {
        Failure::new(
            SLABFS_EHANDLE,
            format!("{fork_id} is not a fork, or was closed; slabfs_gfs_fork opens one"),
        )
    })
}

fn request(handle: c_int) -> Result<Arc<Pending>, Failure> {
    let found = REQUESTS.here().lock().get(&handle).cloned();
    found.ok_or_else(|| {
        Failure::new(
            SLABFS_EHANDLE,
            format!("no request was begun with handle {handle}, or it was waited for"),
        )
    })
}

/// Reads and validates a request; also returns the length of buffer that it reaches.
///
/// # Safety
/// Every vector has the stated number of elements.
unsafe fn validated(
    vector: *const gfs_batch,
    quant: c_int,
) -> Result<(Vec<Batch>, usize), Failure> {
    let n = u64::try_from(quant)
        .map_err(|_| Failure::invalid(format!("quant is {quant}; give the elements of vector")))?;
    // SAFETY: the caller's.
    let batch = unsafe { batches(vector, n)? };
    let plan = Plan::new(&batch, 1).map_err(|error| Failure::invalid(error.to_string()))?;
    let reach = plan.memory_span().map_or(0, |span| span.1);
    Ok((batch, usize::try_from(reach).unwrap_or(usize::MAX)))
}

/// Assigns a fork number to an open object.
///
/// # Safety
/// `fork_id` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_gfs_fork(object: slabfs_object, fork_id: *mut c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        result(fork_id, "fork_id", || {
            let object = OBJECTS.get(object.id)?;
            let mut forks = FORKS.here().lock();
            let free = (1..c_int::MAX).find(|number| !forks.contains_key(number));
            let number = free.ok_or_else(|| Failure::invalid("there are too many forks"))?;
            forks.insert(number, object);
            Ok(number)
        })
    }
}

/// Closes a fork; running requests continue.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_gfs_close(fork_id: c_int) -> c_int {
    call(|| {
        // Its last reference may be dropped, and the object closed, only when the lock is released.
        let _object = fork(fork_id)?;
        FORKS.here().lock().remove(&fork_id);
        Ok(())
    })
}

/// Reads a batch; returns when all the data is in `buf`.
///
/// # Safety
/// `vector` points to `quant` elements, and every nested vector has the stated number; `buf` is as long as they reach,
/// and no other code uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_read_batched(
    fork_id: c_int,
    buf: *mut c_char,
    vector: *const gfs_batch,
    quant: c_int,
) -> c_int {
    call(|| {
        let object = fork(fork_id)?;
        // SAFETY: the caller's.
        unsafe {
            let (batch, reach) = validated(vector, quant)?;
            Ok(object.read_batch(&batch, Unit::Bytes, bytes_mut(buf.cast(), reach)?)?)
        }
    })
}

/// Writes a batch; returns when the data servers have all the data.
///
/// # Safety
/// As for `gfs_read_batched`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_write_batched(
    fork_id: c_int,
    buf: *const c_char,
    vector: *const gfs_batch,
    quant: c_int,
) -> c_int {
    call(|| {
        let object = fork(fork_id)?;
        // SAFETY: the caller's.
        unsafe {
            let (batch, reach) = validated(vector, quant)?;
            object.write_batch(&batch, Unit::Bytes, bytes(buf.cast(), reach)?)?;
        }
        Ok(object.flush()?)
    })
}

/// Begins to read a batch.
///
/// # Safety
/// As for `gfs_read_batched`, with `buf` valid until `gfs_wait` has returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_nb_read_batched(
    handle: c_int,
    fork_id: c_int,
    buf: *mut c_char,
    vector: *const gfs_batch,
    quant: c_int,
) -> c_int {
    call(|| {
        let object = fork(fork_id)?;
        // SAFETY: the caller's.
        let made = unsafe {
            let (batch, reach) = validated(vector, quant)?;
            let buffer = Borrowed::new(buf.cast(), reach)?;
            object.read_batch_transfer(&batch, Unit::Bytes, buffer)
        };
        begin(handle, Pending::of(&object, made)?)
    })
}

/// Begins to write a batch.
///
/// # Safety
/// As for `gfs_nb_read_batched`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gfs_nb_write_batched(
    handle: c_int,
    fork_id: c_int,
    buf: *const c_char,
    vector: *const gfs_batch,
    quant: c_int,
) -> c_int {
    call(|| {
        let object = fork(fork_id)?;
        // SAFETY: the caller's.
        let made = unsafe {
            let (batch, reach) = validated(vector, quant)?;
            let buffer = Borrowed::new(buf.cast(), reach)?;
            object.write_batch_transfer(&batch, Unit::Bytes, buffer)
        };
        begin(handle, Pending::of(&object, made)?)
    })
}

fn begin(handle: c_int, pending: Pending) -> Result<(), Failure> {
    let pending = Arc::new(pending);
    {
        let mut requests = REQUESTS.here().lock();
        if requests.contains_key(&handle) {
            return Err(Failure::new(
                SLABFS_EBUSY,
                format!("handle {handle} has a request; call gfs_wait before using it again"),
            ));
        }
        requests.insert(handle, pending.clone());
    }
    // Not under the lock, since it may block at the limit of data in flight. A request that fails to start is removed.
    pending.start().inspect_err(|_| {
        REQUESTS.here().lock().remove(&handle);
    })
}

/// Whether all the data of a request has been transferred.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_test(handle: c_int) -> c_int {
    let mut ended = false;
    let code = call(|| {
        ended = request(handle)?.control().test();
        Ok(())
    });
    match code {
        SLABFS_OK => c_int::from(ended),
        code => code,
    }
}

/// Waits until all the data of a request has been transferred, and frees the handle.
#[unsafe(no_mangle)]
pub extern "C" fn gfs_wait(handle: c_int) -> c_int {
    call(|| {
        let pending = request(handle)?;
        let result = pending.wait();
        let mut requests = REQUESTS.here().lock();
        // Another thread may have waited too, and begun the next request with this handle.
        if requests
            .get(&handle)
            .is_some_and(|now| Arc::ptr_eq(now, &pending))
        {
            requests.remove(&handle);
        }
        result
    })
}

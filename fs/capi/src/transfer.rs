//! Transfers: made, started, tested, waited for, cancelled, alone and many as one.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use slabfs_fs::session::{Control, Memory, Select, start_all};

use crate::argument::{MAX_TEXT, Out, axes, bytes, list, text, unused};
use crate::bytes::{slab, slabfs_slab};
use crate::error::{Failure, call};
use crate::handles::{OBJECTS, TRANSFERS, slabfs_object, slabfs_transfer};
use crate::pending::{Borrowed, Pending};

/// Most transfers of a call.
const MAX_TRANSFERS: usize = 1 << 20;

/// How the elements of a transfer lie in its buffer; all zero is packed, of the object's dtype. They pair up with those
/// of the object's selection in row-major order of both, so that only their numbers have to agree.
#[repr(C)]
#[derive(Debug)]
pub struct slabfs_memory {
    /// Where the first element lies, in bytes from the start of the buffer.
    pub offset: u64,
    /// Axes of `shape` and `strides`.
    pub rank: usize,
    /// Elements an axis, slowest first. NULL: as the object's selection.
    pub shape: *const u64,
    /// Bytes from an element to the next along each axis. NULL: packed, and `rank` and `shape` mean nothing.
    pub strides: *const u64,
    /// The type of the elements in memory, in NumPy's letters. NULL: the object's.
    pub dtype: *const c_char,
    /// Zero.
    pub reserved: [u64; 4],
}

/// A buffer and how elements lie in it.
struct Buffer {
    start: *mut u8,
    len: usize,
    memory: Memory,
}

/// # Safety
/// What `memory` points to is there.
unsafe fn described(
    start: *mut u8,
    len: usize,
    memory: *const slabfs_memory,
) -> Result<Buffer, Failure> {
    // SAFETY: nothing is read; a NULL and what is too long are errors.
    unsafe { bytes(start.cast_const().cast(), len)? };
    // SAFETY: the caller's.
    let Some(how) = (unsafe { memory.as_ref() }) else {
        return Ok(Buffer {
            start,
            len,
            memory: Memory::packed(),
        });
    };
    unused(&how.reserved, "memory")?;
    let offset = usize::try_from(how.offset).unwrap_or(usize::MAX);
    if offset > len {
        return Err(Failure::invalid(format!(
            "the elements begin {offset} bytes from the start of a buffer that has {len}"
        )));
    }
    let rank = how.rank;
    // SAFETY: the caller's.
    let mut memory = unsafe {
        match (how.strides.is_null(), how.shape.is_null()) {
            (true, _) => Memory::packed(),
            (false, true) => Memory::strides(axes(how.strides, rank, "strides")?),
            (false, false) => Memory::strided(
                0,
                axes(how.shape, rank, "shape")?,
                axes(how.strides, rank, "strides")?,
            ),
        }
    };
    if !how.dtype.is_null() {
        // SAFETY: the caller's.
        let dtype = unsafe { text(how.dtype, "dtype", MAX_TEXT)? };
        let parsed = dtype.parse();
        memory = memory.of_type(parsed.map_err(|error: slabfs_model::DTypeError| {
            Failure::invalid(format!("the dtype in memory: {error}"))
        })?);
    }
    Ok(Buffer {
        // Within the buffer, or at its end; of a NULL nothing is added.
        start: start.wrapping_add(offset),
        len: len - offset,
        memory,
    })
}

/// # Safety
/// What `hyperslab` points to is there.
unsafe fn select<'a>(hyperslab: *const slabfs_slab) -> Result<Select<'a>, Failure> {
    // SAFETY: the caller's.
    match unsafe { hyperslab.as_ref() } {
        // SAFETY: the caller's.
        Some(hyperslab) => Ok(Select::Slab(unsafe { slab(hyperslab)? })),
        None => Ok(Select::All),
    }
}

/// Makes a transfer of a hyperslab of an object (NULL: all of it) into `len` bytes at `buffer`, which are as `memory`
/// describes them (NULL: packed). From `slabfs_transfer_start` until it has ended the buffer is the library's: nobody
/// else may use it.
///
/// # Safety
/// `buffer` points to `len` bytes until the transfer has ended or was freed; what the others point to is there during the
/// call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_transfer_read(
    object: slabfs_object,
    hyperslab: *const slabfs_slab,
    buffer: *mut c_void,
    len: usize,
    memory: *const slabfs_memory,
    transfer: *mut slabfs_transfer,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        unsafe {
            let out = Out::new(transfer, "transfer")?;
            let object = OBJECTS.get(object.id)?;
            let to = described(buffer.cast(), len, memory)?;
            let borrowed = Borrowed::new(to.start, to.len);
            let made = object.read_transfer(select(hyperslab)?, &to.memory, borrowed);
            put(Pending::of(&object, made)?, &out);
        }
        Ok(())
    })
}

/// Makes a transfer of `len` bytes at `buffer`, which are as `memory` describes them (NULL: packed), to a hyperslab of
/// an object (NULL: all of it). From `slabfs_transfer_start` until it has ended nobody may change the buffer.
///
/// # Safety
/// As of `slabfs_transfer_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_transfer_write(
    object: slabfs_object,
    hyperslab: *const slabfs_slab,
    buffer: *const c_void,
    len: usize,
    memory: *const slabfs_memory,
    transfer: *mut slabfs_transfer,
) -> i32 {
    call(|| {
        // SAFETY: the caller's; what is written from is not changed.
        unsafe {
            let out = Out::new(transfer, "transfer")?;
            let object = OBJECTS.get(object.id)?;
            let from = described(buffer.cast_mut().cast(), len, memory)?;
            let borrowed = Borrowed::new(from.start, from.len);
            let made = object.write_transfer(select(hyperslab)?, &from.memory, borrowed);
            put(Pending::of(&object, made)?, &out);
        }
        Ok(())
    })
}

/// Gives a transfer a handle.
pub(crate) fn put(pending: Pending, out: &Out<slabfs_transfer>) {
    let id = TRANSFERS.put(pending);
    out.set(slabfs_transfer { id });
}

/// Starts a transfer; once is enough. Returns at once, unless so much is under way that it has to wait for room.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_transfer_start(transfer: slabfs_transfer) -> i32 {
    call(|| TRANSFERS.get(transfer.id)?.start())
}

/// Starts `count` transfers of one session as one: all that they need of a data server travels in one message (in several
/// above 64 MiB), writes first. Each ends with its own result.
///
/// # Safety
/// `transfers` points to `count` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_transfer_start_all(
    count: usize,
    transfers: *const slabfs_transfer,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let all = unsafe { all(count, transfers)? };
        start(&all)
    })
}

/// Says in `ended` whether a transfer has ended, so that `slabfs_transfer_wait` would not wait.
///
/// # Safety
/// `ended` is a place for one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_transfer_test(transfer: slabfs_transfer, ended: *mut i32) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let out = unsafe { Out::new(ended, "ended")? };
        out.set(i32::from(TRANSFERS.get(transfer.id)?.control().test()));
        Ok(())
    })
}

/// Waits for the end of a transfer, after starting it if it was not, and returns its result; the buffer is the caller's
/// again. Any number of threads may wait.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_transfer_wait(transfer: slabfs_transfer) -> i32 {
    call(|| TRANSFERS.get(transfer.id)?.wait())
}

/// Waits for the end of `count` transfers; those that were not started are, as one. Returns the first result that is an
/// error, and `slabfs_error_index` says whose; all have ended in any case.
///
/// # Safety
/// `transfers` points to `count` of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_transfer_wait_all(
    count: usize,
    transfers: *const slabfs_transfer,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let all = unsafe { all(count, transfers)? };
        // What cannot be started as one is started one by one, and says so if that cannot be either.
        let _ = start(&all);
        let mut first = Ok(());
        for (index, transfer) in all.iter().enumerate() {
            let result = transfer.wait().map_err(|failure| failure.at(index));
            first = first.and(result);
        }
        first
    })
}

/// Ends a transfer without doing anything if it has not begun. One under way ends with SLABFS_ECANCELLED if nothing of
/// it was done, else with its result: `slabfs_transfer_wait` tells.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_transfer_cancel(transfer: slabfs_transfer) -> i32 {
    call(|| {
        TRANSFERS.get(transfer.id)?.control().cancel();
        Ok(())
    })
}

/// Gives a transfer back. One that has not ended is cancelled, and its end waited for: the buffer is the caller's again
/// when this returns.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_transfer_free(transfer: slabfs_transfer) -> i32 {
    call(|| {
        TRANSFERS.take(transfer.id)?.end();
        Ok(())
    })
}

/// # Safety
/// `transfers` points to `count` of them.
unsafe fn all(
    count: usize,
    transfers: *const slabfs_transfer,
) -> Result<Vec<Arc<Pending>>, Failure> {
    // SAFETY: the caller's.
    let transfers = unsafe { list(transfers, count, "transfers", MAX_TRANSFERS)? };
    let found = transfers.iter().enumerate();
    found
        .map(|(index, one)| TRANSFERS.get(one.id).map_err(|error| error.at(index)))
        .collect()
}

fn start(all: &[Arc<Pending>]) -> Result<(), Failure> {
    let mut controls: Vec<Control> = all.iter().map(|one| one.control().clone()).collect();
    Ok(start_all(&mut controls)?)
}

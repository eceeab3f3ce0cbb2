//! The calls for transfers: create, start, test, wait, cancel, free; single or many together.

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use slabfs_fs::session::{Control, Memory, Object, Select, start_all};

use crate::argument::{MAX_TEXT, axes, list, result, text, unused};
use crate::bytes::{slab, slabfs_slab};
use crate::error::{Failure, call};
use crate::handles::{OBJECTS, TRANSFERS, slabfs_object, slabfs_transfer};
use crate::pending::{Borrowed, Made, Pending};

/// The maximum number of transfers in a call.
const MAX_TRANSFERS: usize = 1 << 20;

/// The memory layout of a transfer's elements in its buffer; all zero means packed, with the object's dtype. The
/// elements in memory correspond to those of the object's selection in row-major order of both; only their
/// numbers must be equal.
#[repr(C)]
#[derive(Debug)]
pub struct slabfs_memory {
    /// The offset of the first element in the buffer, in bytes.
    pub offset: u64,
    /// The length of `shape` and `strides`.
    pub rank: usize,
    /// Elements per axis, slowest first. NULL: the shape of the object's selection.
    pub shape: *const u64,
    /// The stride of each axis in bytes. NULL: packed; `rank` and `shape` are ignored.
    pub strides: *const u64,
    /// The type of the elements in memory, in NumPy notation. NULL: the object's.
    pub dtype: *const c_char,
    /// Must be zero.
    pub reserved: [u64; 4],
}

/// A buffer, without what precedes its first element, and its layout.
///
/// # Safety
/// `memory` is NULL or points to valid data; the buffer as for [`Borrowed::new`].
unsafe fn described(
    start: *const c_void,
    len: usize,
    memory: *const slabfs_memory,
) -> Result<(Borrowed, Memory), Failure> {
    // SAFETY: the caller's.
    let (buffer, how) = unsafe { (Borrowed::new(start, len)?, memory.as_ref()) };
    let Some(how) = how else {
        return Ok((buffer, Memory::packed()));
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
    Ok((buffer.from(offset), memory))
}

/// # Safety
/// `hyperslab` is NULL or points to valid data.
unsafe fn select<'a>(hyperslab: *const slabfs_slab) -> Result<Select<'a>, Failure> {
    // SAFETY: the caller's.
    match unsafe { hyperslab.as_ref() } {
        // SAFETY: the caller's.
        Some(hyperslab) => Ok(Select::Slab(unsafe { slab(hyperslab)? })),
        None => Ok(Select::All),
    }
}

/// Creates a transfer that reads a hyperslab of an object (NULL: all of it) into `len` bytes at `buffer`, with
/// the layout `memory` (NULL: packed). From `slabfs_transfer_start` until the transfer has ended, the library
/// owns the buffer: no other code may use it.
///
/// # Safety
/// `buffer` points to `len` bytes until the transfer has ended or was freed; the other pointers are valid during
/// the call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_transfer_read(
    object: slabfs_object,
    hyperslab: *const slabfs_slab,
    buffer: *mut c_void,
    len: usize,
    memory: *const slabfs_memory,
    transfer: *mut slabfs_transfer,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        create(object, transfer, |object| {
            let (buffer, memory) = described(buffer, len, memory)?;
            Ok(object.read_transfer(select(hyperslab)?, &memory, buffer))
        })
    }
}

/// Creates a transfer that writes `len` bytes at `buffer`, with the layout `memory` (NULL: packed), to a
/// hyperslab of an object (NULL: all of it). From `slabfs_transfer_start` until the transfer has ended, the
/// buffer must not be changed.
///
/// # Safety
/// As for `slabfs_transfer_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_transfer_write(
    object: slabfs_object,
    hyperslab: *const slabfs_slab,
    buffer: *const c_void,
    len: usize,
    memory: *const slabfs_memory,
    transfer: *mut slabfs_transfer,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        create(object, transfer, |object| {
            let (buffer, memory) = described(buffer, len, memory)?;
            Ok(object.write_transfer(select(hyperslab)?, &memory, buffer))
        })
    }
}

/// Runs the body of a call that creates a transfer of an object, and assigns a handle to it.
///
/// # Safety
/// `transfer` is NULL or points to memory for a handle.
pub(crate) unsafe fn create(
    object: slabfs_object,
    transfer: *mut slabfs_transfer,
    make: impl FnOnce(&Object) -> Result<Made, Failure>,
) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(transfer, "transfer", || {
            let object = OBJECTS.get(object.id)?;
            let made = make(&object)?;
            let id = TRANSFERS.put(Pending::of(&object, made)?);
            Ok(slabfs_transfer { id })
        })
    }
}

/// Starts a transfer; a repeated start has no effect. Returns at once, unless the limit of data in flight is
/// reached.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_transfer_start(transfer: slabfs_transfer) -> i32 {
    call(|| TRANSFERS.get(transfer.id)?.start())
}

/// Starts `count` transfers of one session together: their requests to a data server travel in one message (in
/// several above 64 MiB), writes first. Each transfer ends with its own result.
///
/// # Safety
/// `transfers` points to `count` transfers.
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

/// Sets `ended` to 1 if a transfer has ended, so that `slabfs_transfer_wait` would not block; otherwise to 0.
///
/// # Safety
/// `ended` points to writable memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_transfer_test(transfer: slabfs_transfer, ended: *mut i32) -> i32 {
    // SAFETY: the caller's.
    unsafe {
        result(ended, "ended", || {
            Ok(i32::from(TRANSFERS.get(transfer.id)?.control().test()))
        })
    }
}

/// Waits for the end of a transfer, starting it if necessary, and returns its result. Then the caller owns the
/// buffer again. Any number of threads may wait.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_transfer_wait(transfer: slabfs_transfer) -> i32 {
    call(|| TRANSFERS.get(transfer.id)?.wait())
}

/// Waits for the end of `count` transfers, first starting together those that were not started. Returns the first
/// error; `slabfs_error_index` gives the index of its transfer. All transfers have ended in any case.
///
/// # Safety
/// `transfers` points to `count` transfers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn slabfs_transfer_wait_all(
    count: usize,
    transfers: *const slabfs_transfer,
) -> i32 {
    call(|| {
        // SAFETY: the caller's.
        let all = unsafe { all(count, transfers)? };
        // If they cannot be started together, `wait` starts them one by one and returns the errors.
        let _ = start(&all);
        let mut first = Ok(());
        for (index, transfer) in all.iter().enumerate() {
            let result = transfer.wait().map_err(|failure| failure.at(index));
            first = first.and(result);
        }
        first
    })
}

/// Cancels a transfer. It ends with SLABFS_ECANCELLED if no part of it was done yet, otherwise with its result,
/// which `slabfs_transfer_wait` returns.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_transfer_cancel(transfer: slabfs_transfer) -> i32 {
    call(|| {
        TRANSFERS.get(transfer.id)?.control().cancel();
        Ok(())
    })
}

/// Frees a transfer. A transfer that has not ended is cancelled first, and the call waits for its end; afterwards
/// the caller owns the buffer again.
#[unsafe(no_mangle)]
pub extern "C" fn slabfs_transfer_free(transfer: slabfs_transfer) -> i32 {
    call(|| {
        TRANSFERS.take(transfer.id)?.end();
        Ok(())
    })
}

/// # Safety
/// `transfers` points to `count` transfers.
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

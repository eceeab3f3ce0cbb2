//! A byte object to which all append, and which they truncate and read.

use std::fs::{File, OpenOptions};
use std::io::{Result, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use super::Desk;
use crate::history::op::TORN;
use crate::history::{Answer, Call};

/// More than the size of all records, in one request.
const ROOM: usize = 64 << 10;

pub(super) fn work(desk: &mut Desk) {
    let name = desk.name();
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).open(&desk.task.object);
    let file = file.expect("the object opens");
    // The kernel of one mount knows the place of its own append, but not of other mounts' appends.
    let knows_places = desk.task.mounts == 1;
    for _ in 0..desk.task.operations {
        match desk.random.range(0, 12) {
            0..5 => {
                let value = desk.fresh();
                desk.note(&name, Call::Append { value }, || {
                    append(&file, value, knows_places)
                });
            }
            5 => {
                let records = desk.random.range(0, 5);
                desk.note(&name, Call::Resize { records }, || {
                    file.set_len(records * 8)?;
                    Ok(Answer::Done)
                });
            }
            6..9 => {
                desk.note(&name, Call::Size, || Ok(Answer::Number(size(&file)? / 8)));
            }
            _ => {
                desk.note(&name, Call::ReadAll, || read_all(&file));
            }
        }
    }
    desk.peers.barrier();
    desk.note(&name, Call::ReadAll, || read_all(&file));
}

/// The size from the mount, not from the kernel's cache: while an append runs, the kernel of that mount may
/// return the size after it, and then again the cached one before it.
fn size(file: &File) -> Result<u64> {
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_FORCE_SYNC;
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: the descriptor is open, the path is empty and ends in NUL, and `found` outlives the call.
    let result = unsafe {
        let mask = libc::STATX_SIZE;
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            flags,
            mask,
            found.as_mut_ptr(),
        )
    };
    if result == -1 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: any bytes are a `statx`, and all of them were set.
    Ok(unsafe { found.assume_init() }.stx_size)
}

fn append(mut file: &File, value: u64, knows_place: bool) -> Result<Answer> {
    let done = file.write(&value.to_le_bytes())?;
    assert_eq!(done, 8, "a record is appended completely");
    if !knows_place {
        return Ok(Answer::Done);
    }
    let end = file.stream_position()?;
    Ok(Answer::Number(end / 8 - 1))
}

fn read_all(file: &File) -> Result<Answer> {
    let mut bytes = vec![0; ROOM];
    let len = file.read_at(&mut bytes, 0)?;
    let (records, rest) = bytes[..len].as_chunks::<8>();
    let mut values: Vec<u64> = records
        .iter()
        .map(|record| u64::from_le_bytes(*record))
        .collect();
    if !rest.is_empty() {
        values.push(TORN);
    }
    Ok(Answer::Values(values))
}

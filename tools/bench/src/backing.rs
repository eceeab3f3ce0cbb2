//! Memory of the host behind the guest's free pages, brought before a measurement.
//!
//! A virtual machine whose balloon reports free pages (`VIRTIO_BALLOON_F_REPORTING`) gives what is
//! freed back to its host within seconds, and the next touch of such a page is a fault in the host:
//! 0.3 to 1 GiB/s, against 5 to 10 GiB/s of what is measured. Files in memory are made of such
//! pages, so a case that writes would measure the host. The pages are touched and freed just before,
//! for every system alike; the kernel hands out what was freed last first.

use std::num::NonZeroUsize;

use anyhow::Context;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

/// What is left alone of the memory that is available.
const SPARE: u64 = 2 << 30;

/// Touches and frees `bytes`, or what may be taken of the memory that is available.
pub(crate) fn bring(bytes: u64) -> anyhow::Result<()> {
    let bytes = bytes.min(available()?.saturating_sub(SPARE));
    let Some(length) = NonZeroUsize::new(bytes as usize) else {
        return Ok(());
    };
    // SAFETY: a new private mapping of this function's own, at a place of the kernel's choice.
    let memory = unsafe {
        mmap_anonymous(
            None,
            length,
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE,
        )
    }
    .context("mapping memory")?;
    // SAFETY: the mapping just made, whole; nobody else knows it.
    let advised = unsafe { madvise(memory, length.get(), MmapAdvise::MADV_HUGEPAGE) };
    for at in (0..length.get()).step_by(4096) {
        // SAFETY: inside the mapping, which is writable; volatile, since nobody reads it.
        unsafe { memory.cast::<u8>().add(at).write_volatile(1) };
    }
    // SAFETY: as above; no pointer into it is left.
    unsafe { munmap(memory, length.get()) }.context("unmapping memory")?;
    // Without huge pages the memory comes all the same.
    match advised {
        Ok(()) | Err(nix::Error::EINVAL) => Ok(()),
        Err(errno) => Err(errno).context("asking for huge pages"),
    }
}

/// Bytes of memory that may be taken without swapping.
fn available() -> anyhow::Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("/proc/meminfo")?;
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.split_whitespace().next())
        .and_then(|number| number.parse::<u64>().ok())
        .context("/proc/meminfo has no MemAvailable")?;
    Ok(kib * 1024)
}

#[cfg(test)]
mod tests {
    #[test]
    fn memory_comes_and_goes() {
        super::bring(0).expect("nothing");
        super::bring((8 << 20) + 1).expect("a little");
    }
}

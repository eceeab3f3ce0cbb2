//! Allocates host memory for the guest's free pages, before a measurement.
//!
//! A virtual machine whose balloon reports free pages (`VIRTIO_BALLOON_F_REPORTING`) returns freed memory to
//! its host within seconds, and the next access to such a page is a fault in the host: 0.3 to 1 GiB/s, against
//! 5 to 10 GiB/s of the measured systems. Files in memory consist of such pages, so a case that writes would
//! measure the host. The pages are touched and freed just before, for all systems alike; the kernel reuses the
//! pages freed last first.

use std::num::NonZeroUsize;

use anyhow::Context;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

/// Available memory that is left untouched.
const SPARE: u64 = 2 << 30;

/// Touches and frees `bytes`, limited by the available memory.
pub(crate) fn touch(bytes: u64) -> anyhow::Result<()> {
    let bytes = bytes.min(available()?.saturating_sub(SPARE));
    let Some(length) = NonZeroUsize::new(bytes as usize) else {
        return Ok(());
    };
    // SAFETY: a new private mapping of this function's own, at an address of the kernel's choice.
    let memory = unsafe {
        mmap_anonymous(
            None,
            length,
            ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
            MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE,
        )
    }
    .context("mapping memory")?;
    // SAFETY: the complete mapping just made; nothing else uses it.
    let advised = unsafe { madvise(memory, length.get(), MmapAdvise::MADV_HUGEPAGE) };
    for at in (0..length.get()).step_by(4096) {
        // SAFETY: inside the mapping, which is writable; volatile, because it is never read.
        unsafe { memory.cast::<u8>().add(at).write_volatile(1) };
    }
    // SAFETY: as above; no pointer into it is left.
    unsafe { munmap(memory, length.get()) }.context("unmapping memory")?;
    // Without huge pages it works too.
    match advised {
        Ok(()) | Err(nix::Error::EINVAL) => Ok(()),
        Err(errno) => Err(errno).context("asking for huge pages"),
    }
}

/// Bytes of memory that can be allocated without swapping.
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
    fn memory_is_touched_and_freed() {
        super::touch(0).expect("nothing");
        super::touch((8 << 20) + 1).expect("a little");
    }
}

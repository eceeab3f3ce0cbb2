//! Memory: what the kernel says about it, and allocating the host's memory for the guest's free pages.

use std::num::NonZeroUsize;

use anyhow::Context;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, munmap};

/// Available memory that is left untouched, in bytes.
const SPARE: u64 = 2 << 30;

/// A field of `/proc/PID/status`, in MiB.
pub(crate) fn of_process(pid: u32, field: &str) -> anyhow::Result<f64> {
    Ok(kib(&format!("/proc/{pid}/status"), field)? as f64 / 1024.0)
}

fn kib(path: &str, field: &str) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
    field_of(&text, field).with_context(|| format!("{path} has no {field}"))
}

fn field_of(text: &str, field: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Touches and frees `bytes`, limited by the available memory, before a measurement.
///
/// A virtual machine whose balloon reports free pages (`VIRTIO_BALLOON_F_REPORTING`) returns freed memory to
/// its host within seconds, and the next access to such a page is a fault in the host: 0.3 to 1 GiB/s, against
/// 5 to 10 GiB/s of the measured systems. Files in memory consist of such pages, so a case that writes would
/// measure the host. The pages are touched and freed just before, for all systems alike; the kernel reuses the
/// pages freed last first, as long as they are huge: others are merged, and put at the end of its lists.
pub(crate) fn touch(bytes: u64) -> anyhow::Result<()> {
    let available = kib("/proc/meminfo", "MemAvailable")? * 1024;
    let bytes = bytes.min(available.saturating_sub(SPARE));
    let Some(length) = NonZeroUsize::new(bytes as usize) else {
        return Ok(());
    };
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
    // SAFETY: a new private mapping of this function's own, at an address of the kernel's choice.
    let memory =
        unsafe { mmap_anonymous(None, length, access, flags) }.context("mapping memory")?;
    // Without huge pages it works too.
    // SAFETY: the complete mapping just made; nothing else uses it.
    let _ = unsafe { madvise(memory, length.get(), MmapAdvise::MADV_HUGEPAGE) };
    for at in (0..length.get()).step_by(4096) {
        // SAFETY: inside the mapping, which is writable; volatile, because it is never read.
        unsafe { memory.cast::<u8>().add(at).write_volatile(1) };
    }
    // SAFETY: as above; no pointer into it is left.
    unsafe { munmap(memory, length.get()) }.context("unmapping memory")
}

/// A buffer whose pages are allocated, and which has no zeros.
pub(crate) fn buffer(bytes: usize) -> Vec<u8> {
    vec![0xa5; bytes]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_touched_and_freed() {
        touch(0).expect("nothing");
        touch((8 << 20) + 1).expect("a little");
    }

    #[test]
    fn fields_are_in_kib() {
        let status = "Name:\tcat\nVmHWM:\t    2048 kB\nRssAnon:\t 12 kB\n";
        assert_eq!(field_of(status, "VmHWM"), Some(2048));
        assert_eq!(field_of(status, "VmH"), None);
        assert!(of_process(std::process::id(), "VmHWM").expect("own") > 0.0);
    }
}

//! The benchmark's own filesystems, served by a process of their own: `slabfs-bench fs KIND DIR`.
//!
//! `settings` holds what they have in common with the slabfs mount; `tree` the names; `keep` what
//! becomes of the bytes; `ops` answers the kernel.

mod keep;
mod ops;
mod settings;
mod tree;

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::ValueEnum;
use nix::sys::signal::{SigSet, Signal};

/// Which filesystem to serve, and where.
#[derive(Debug, clap::Args)]
pub(crate) struct FsArgs {
    kind: FsKind,
    mountpoint: PathBuf,
}

/// What becomes of the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum FsKind {
    /// Nothing: writes are dropped, reads come from one buffer.
    Null,
    /// They are copied into memory once, and read from there.
    Memory,
}

/// Mounts, says `ready:` and serves until SIGTERM or SIGINT.
pub(crate) fn serve(args: &FsArgs) -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    // Blocked before the session's threads start, so that `wait` alone sees them.
    signals.thread_block().context("cannot block signals")?;
    let name = match args.kind {
        FsKind::Null => "slabfs-bench-null",
        FsKind::Memory => "slabfs-bench-memory",
    };
    let filesystem = ops::BenchFs::new(args.kind);
    let session = fuser::spawn_mount(filesystem, &args.mountpoint, &settings::session(name))
        .with_context(|| format!("cannot mount {}", args.mountpoint.display()))?;
    println!("ready: {}", args.mountpoint.display());
    std::io::stdout().flush().context("writing to stdout")?;
    signals.wait().context("waiting for a signal")?;
    session.umount_and_join().context("unmounting")
}

//! The benchmark's own filesystems, served by a process of their own: `slabfs-bench fs KIND DIR`.
//!
//! `settings` has the parameters that are equal to those of the slabfs mount; `tree` the names and the bytes;
//! `ops` the FUSE operations.

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

/// The storage of file data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FsKind {
    /// None: writes are dropped, reads come from one buffer.
    Null,
    /// Data is copied into memory once, and read from there.
    Memory,
    /// The same, and the kernel caches it in pages.
    Pages,
}

/// Mounts, prints `ready:` and serves until SIGTERM or SIGINT.
pub(crate) fn serve(args: &FsArgs) -> anyhow::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    // Blocked before the session's threads start, so that only `wait` gets them.
    signals.thread_block().context("cannot block signals")?;
    let name = format!("slabfs-bench-{}", crate::args::name(args.kind));
    let tree = tree::Tree::new(args.kind != FsKind::Null, args.kind == FsKind::Pages);
    let session = fuser::spawn_mount(tree, &args.mountpoint, &settings::session(&name))
        .with_context(|| format!("cannot mount {}", args.mountpoint.display()))?;
    println!("ready: {}", args.mountpoint.display());
    std::io::stdout().flush().context("writing to stdout")?;
    signals.wait().context("waiting for a signal")?;
    session.umount_and_join().context("unmounting")
}

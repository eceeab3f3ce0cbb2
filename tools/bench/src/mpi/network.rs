//! A network of this program's own: a loopback device that has, besides 127.0.0.1, an address for programs that
//! refuse 127.0.0.1. It is removed when the last process in it has ended.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::cleanup;

/// The address.
pub(super) const ADDRESS: &str = "10.111.0.1";

/// Moves this program there. Must be called before any other thread starts.
pub(super) fn enter() -> anyhow::Result<()> {
    // SAFETY: it takes no pointers; this thread is the only one.
    let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    ensure!(
        moved == 0,
        "making a network namespace: {}",
        std::io::Error::last_os_error()
    );
    let address = format!("{ADDRESS}/32");
    let commands: [&[&str]; 2] = [
        &["link", "set", "lo", "up"],
        &["address", "add", &address, "dev", "lo"],
    ];
    for arguments in commands {
        let status = Command::new("ip").args(arguments).status();
        let status = status.context("running ip")?;
        ensure!(status.success(), "ip {} failed", arguments.join(" "));
    }
    Ok(())
}

/// Waits until process `pid` listens at a port of the address.
pub(super) fn wait_for(port: u16, pid: u32, name: &str) -> anyhow::Result<()> {
    let address: SocketAddr = format!("{ADDRESS}:{port}").parse().context("an address")?;
    wait_until(pid, name, || {
        Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok())
    })
}

/// Waits for a condition that a foreign program does not report; fails if `pid` has ended before, or after two
/// minutes.
pub(super) fn wait_until(
    pid: u32,
    name: &str,
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    while !is_so()? {
        ensure!(
            !cleanup::has_ended(pid)?,
            "{name} ended by itself; is a package missing?"
        );
        ensure!(
            started.elapsed() < Duration::from_secs(120),
            "{name} was not ready within two minutes"
        );
        // There is no event to wait for.
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

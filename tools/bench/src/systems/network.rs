//! A network of this program's own: a loopback device that has, besides 127.0.0.1, an address for programs that
//! refuse 127.0.0.1. It is removed when the last process in it has ended.

use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use nix::sched::{CloneFlags, unshare};

use crate::cleanup::{self, command, output};

/// The address.
pub(super) const ADDRESS: &str = "10.111.0.1";

/// Moves this program there. Must be called before any other thread starts.
pub(crate) fn enter() -> anyhow::Result<()> {
    unshare(CloneFlags::CLONE_NEWNET).context("making a network namespace")?;
    let address = format!("{ADDRESS}/32");
    output(&mut command("ip", &[&"link", &"set", &"lo", &"up"]))?;
    output(command("ip", &[&"address", &"add", &address]).args(["dev", "lo"])).map(drop)
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

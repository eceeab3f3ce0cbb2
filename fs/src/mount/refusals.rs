//! The log line of a program's mistake: the program gets an errno only, and the log names the path, the selection, the
//! dims and the reason, where [`super::errno`] alone has an inode number.
//!
//! These lines have the level `debug`, since any user can cause them. Finding the path asks the metadata service, so it
//! is done on the pool unless the service is in this process, for a few at a time; the others are logged with the inode
//! number.

use std::sync::atomic::Ordering;

use fuser::Errno;
use slabfs_mdserver::api::{Ino, op};
use slabfs_model::format_dims;

use super::errno::{Failure, number, report, report_inode};
use super::shared::Shared;
use crate::clients::Clients;
use crate::view::nodes::Node;

/// The most lines whose paths are being looked up.
const MOST: usize = 4;

impl Shared {
    /// Logs a failure of `operation` on `inode`, or on `name` in the directory `inode`; returns the errno for the
    /// program.
    pub(super) fn refusal(
        &self,
        operation: &'static str,
        inode: u64,
        name: Option<&[u8]>,
        failure: &Failure,
    ) -> Errno {
        let errno = number(failure);
        let plain = || match name {
            Some(_) => report(operation, inode, failure),
            None => report_inode(operation, inode, failure),
        };
        let mistake = matches!(errno.code(), libc::EINVAL | libc::EFBIG);
        if !mistake || !tracing::enabled!(tracing::Level::DEBUG) {
            return plain();
        }
        let (ino, selection) = match self.nodes.get(inode) {
            Some(Node::Plain(ino)) => (ino, String::new()),
            Some(Node::Selection(node)) => (node.object, format!("@{}", node.selection)),
            _ => return plain(),
        };
        let running = self.refused.clone();
        if running.fetch_add(1, Ordering::Relaxed) >= MOST {
            running.fetch_sub(1, Ordering::Relaxed);
            return plain();
        }
        let name = name.map(|name| String::from_utf8_lossy(name).into_owned());
        let (client, why) = (self.client.clone(), failure.to_string());
        let say = move || {
            let mut path = path(&client, ino);
            if let Some(name) = name {
                path = format!("{}/{name}", path.trim_end_matches('/'));
            }
            let form = form(&client, ino);
            tracing::debug!(operation, "{path}{selection}{form}: {why}");
            running.fetch_sub(1, Ordering::Relaxed);
        };
        // A service in this process is asked at once, and the line is there before the reply.
        match self.client.local() {
            true => say(),
            false => self.pool.submit(Box::new(say)),
        }
        errno
    }
}

/// A path from the root of the mount, or the inode number.
fn path(client: &Clients, ino: Ino) -> String {
    let (inos, who) = (vec![ino], None);
    let found = client.names().md().call(op::Paths { inos, who });
    match found.ok().and_then(|mut paths| paths.pop()) {
        Some(path) if !path.is_empty() => String::from_utf8_lossy(&path).into_owned(),
        _ => format!("inode {ino}"),
    }
}

/// The dims and dtype of an array, in brackets.
fn form(client: &Clients, ino: Ino) -> String {
    let entry = client.getattr(ino).ok();
    let info = entry.and_then(|entry| entry.info);
    info.filter(|info| info.declared)
        .map_or_else(String::new, |info| {
            format!(" (dims {}, dtype {})", format_dims(&info.dims), info.dtype)
        })
}

//! What concerns the mount and not one inode.

use std::sync::{Arc, Weak};

use slabfs_mdserver::api::{Ino, LockTicket, ServerInfo, op};
use slabfs_model::{ObjectId, ServerId, ShardId};

use super::Clients;
use crate::client::{Caches, Client, Drained, FsError};

impl Clients {
    /// Whether no other session is attached to any shard, so that the kernel's caches stay valid.
    pub fn alone(&self) -> bool {
        self.all.iter().all(|client| client.alone())
    }

    /// Whether other sessions may have to be asked before something is changed.
    pub fn shared(&self) -> bool {
        self.all.iter().any(|client| client.shared())
    }

    /// Whether this mount takes part in rights.
    pub fn strict(&self) -> bool {
        self.names().strict()
    }

    /// Whether everything that operations may wait for is in this process.
    pub fn is_same_host(&self) -> bool {
        self.all.iter().all(|client| client.is_same_host())
    }

    /// Whether metadata service and data servers are all in this process.
    pub fn local(&self) -> bool {
        self.names().local()
    }

    /// Whether nothing may be changed.
    pub fn read_only(&self) -> bool {
        self.names().read_only()
    }

    /// The address at which other processes reach the metadata services, if they can.
    pub fn metadata_addr(&self) -> Option<&str> {
        self.names().metadata_addr()
    }

    /// Whether a session has lapsed.
    pub fn lapsed(&self) -> bool {
        self.all.iter().any(|client| client.lapsed())
    }

    /// Whether another filesystem is at the address of a shard.
    pub fn replaced(&self) -> bool {
        self.all.iter().any(|client| client.replaced())
    }

    /// Waits until the session with the shard that has an inode is not lapsed.
    ///
    /// # Errors
    /// As [`Client::wait_alive`].
    pub fn wait_alive(&self, ino: Ino) -> Result<(), FsError> {
        self.of(ino).wait_alive()
    }

    /// Sets the cache above the clients.
    pub fn set_caches(&self, caches: &Weak<dyn Caches>) {
        for client in &self.all {
            client.set_caches(Weak::clone(caches));
        }
    }

    /// A number for a lock request, by which it can be interrupted.
    pub fn lock_ticket(&self) -> LockTicket {
        self.names().lock_ticket()
    }

    /// As [`Client::interrupt_lock`]; the client that does not know the request does nothing.
    pub fn interrupt_lock(&self, ticket: LockTicket) {
        self.all
            .iter()
            .for_each(|client| client.interrupt_lock(ticket));
    }

    /// As [`Client::abandon_lock`].
    pub fn abandon_lock(&self, ticket: LockTicket) {
        self.all
            .iter()
            .for_each(|client| client.abandon_lock(ticket));
    }

    /// Flushes and syncs everything.
    ///
    /// # Errors
    /// The first error met; the others are flushed all the same.
    pub fn sync_all(&self) -> Result<(), FsError> {
        self.each(|client| client.sync_all())
    }

    /// Returns once everything that was answered before is on the disks of the metadata services.
    ///
    /// # Errors
    /// Those of the services.
    pub fn sync_metadata(&self) -> Result<(), FsError> {
        self.each(|client| Ok(client.md().call(op::Sync {})?))
    }

    /// Ends the sessions; see [`Client::stop`].
    ///
    /// # Errors
    /// The first error met; the others are ended all the same.
    pub fn stop(&self) -> Result<(), FsError> {
        *self.stopping.lock() = true;
        self.wake.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("a background thread of the client panicked");
        }
        if self.divided()
            && !self.read_only()
            && let Err(error) = self.shards.report()
        {
            // Another mount does it again, without effect.
            tracing::debug!("what is done is not reported: {error}");
        }
        self.each(|client| client.stop())
    }

    fn each(&self, run: impl Fn(&Arc<Client>) -> Result<(), FsError>) -> Result<(), FsError> {
        let mut first = Ok(());
        // Names last, so that objects they lead to are complete.
        for client in self.all.iter().rev() {
            first = first.and(run(client));
        }
        first
    }

    /// Marks a data server as being drained, or removes the mark.
    ///
    /// # Errors
    /// As [`Client::set_draining`]; some shards may have the mark then.
    pub fn set_draining(&self, server: ServerId, draining: bool) -> Result<(), FsError> {
        self.all
            .iter()
            .try_for_each(|client| client.set_draining(server, draining))
    }

    /// Moves chunks off a marked server, one shard after the other; see [`Client::drain_slice`].
    ///
    /// # Errors
    /// As there.
    pub fn drain_slice(
        &self,
        server: ServerId,
        after: u64,
        clean: bool,
    ) -> Result<Drained, FsError> {
        if !self.divided() {
            return self
                .names()
                .drain_slice(server, after, clean, (true, false));
        }
        // The first number of a shard is where its round begins; a server is empty if no shard has found anything on it.
        let index = ObjectId(after).shard();
        let from = match after == index.numbers() {
            true => 0,
            false => after,
        };
        let next = ShardId(index.0.saturating_add(1));
        let last = usize::from(next.0) >= self.all.len();
        let so_far = clean || after == 0;
        let client = self.of(ObjectId(after));
        // Each shard finds out by itself, some moments before or after others.
        let servers = self.names().md().call(op::Servers {})?;
        let away = servers
            .iter()
            .any(|known| known.id == server && !known.online);
        let mut done = client.drain_slice(server, from, so_far, (last && so_far, away))?;
        done.clean &= so_far;
        if done.next.is_none() && !last {
            done.next = Some(next.numbers());
        }
        Ok(done)
    }

    /// The data servers, those in the memory of mounts among them.
    ///
    /// # Errors
    /// Those of the metadata services.
    pub fn servers(&self) -> Result<Vec<ServerInfo>, FsError> {
        let mut all = self.names().md().call(op::Servers {})?;
        for client in &self.all[1..] {
            let known = client.md().call(op::Servers {})?;
            all.extend(known.into_iter().filter(|server| server.memory));
        }
        Ok(all)
    }

    /// Counters and state, as `.slabfs/stats` shows them; of a filesystem that is divided, those of all shards are added.
    pub fn stats(&self) -> serde_json::Value {
        let mut all = self.all.iter().map(|client| client.stats());
        let mut sum = all.next().unwrap_or_default();
        for one in all {
            add(&mut sum, &one);
        }
        sum
    }
}

/// Adds numbers, member by member. What is not a number stays as it is, and so does the number of the session.
fn add(sum: &mut serde_json::Value, one: &serde_json::Value) {
    use serde_json::Value;
    match (sum, one) {
        (Value::Object(sum), Value::Object(one)) => {
            for (key, value) in one {
                if key == "session" || key == "sessions" {
                    continue;
                }
                match sum.get_mut(key) {
                    // A mount that was stopped loses all of them at once.
                    Some(known) if key == "sessions_lost" => {
                        if value.as_u64() > known.as_u64() {
                            *known = value.clone();
                        }
                    }
                    Some(known) => add(known, value),
                    None => {
                        sum.insert(key.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Number(sum), Value::Number(one)) => {
            if let (Some(a), Some(b)) = (sum.as_u64(), one.as_u64()) {
                *sum = a.saturating_add(b).into();
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::add;

    #[test]
    fn counters_of_shards_are_added() {
        let mut sum = json!({"a": 1, "b": {"c": 2}, "session": 7, "strict": true});
        add(
            &mut sum,
            &json!({"a": 3, "b": {"c": 4, "d": 5}, "session": 8, "strict": true}),
        );
        assert_eq!(
            sum,
            json!({"a": 4, "b": {"c": 6, "d": 5}, "session": 7, "strict": true})
        );
    }
}

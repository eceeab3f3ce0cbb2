//! The same work with each row under a key of etcd, as a filesystem does it that keeps its metadata there (JuiceFS, for
//! one): read what the operation depends on, then one transaction with the condition that it is unchanged.

use std::time::Duration;

use anyhow::{Context, ensure};
use etcd_client::{Client, Compare, CompareOp, Txn, TxnOp};
use tokio::runtime::Runtime;

use super::{Work, timed};

/// Clients of etcd, one for each thread.
pub(super) struct Keys {
    runtime: Runtime,
    clients: Vec<Client>,
}

impl Keys {
    pub(super) fn new(endpoints: Vec<String>, clients: u64) -> anyhow::Result<Keys> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .context("threads for etcd")?;
        let clients = (0..clients).map(|_| runtime.block_on(Client::connect(&endpoints, None)));
        let clients: Result<Vec<Client>, _> = clients.collect();
        Ok(Keys {
            clients: clients.context("connecting to etcd")?,
            runtime,
        })
    }

    /// Operations a second of all clients.
    pub(super) fn rate(&self, time: Duration, work: Work, round: u64) -> anyhow::Result<f64> {
        timed(time, self.clients.len() as u64, |i, number| {
            let client = self.clients[i as usize].clone();
            let place = format!("/keys/{round}-{i}");
            self.runtime.block_on(step(client, &place, work, number))
        })
    }

    /// Small puts a second of all clients: etcd's own rate.
    pub(super) fn puts(&self, time: Duration) -> anyhow::Result<f64> {
        timed(time, self.clients.len() as u64, |i, number| {
            let mut client = self.clients[i as usize].clone();
            let put = client.put(format!("/puts/{i}"), number.to_le_bytes(), None);
            self.runtime.block_on(put)?;
            Ok(())
        })
    }
}

async fn step(mut client: Client, place: &str, work: Work, number: u64) -> anyhow::Result<()> {
    // An inode's attributes, about as long as those of slabfs.
    let attributes = || vec![number as u8; 100];
    let row = match work {
        Work::Create => format!("{place}/parent"),
        Work::Commit | Work::Tag | Work::Lookup => format!("{place}/inode"),
    };
    let found = client.get(row.clone(), None).await?;
    let revision = found
        .kvs()
        .first()
        .map_or(0, etcd_client::KeyValue::mod_revision);
    let mut when = vec![Compare::mod_revision(
        row.clone(),
        CompareOp::Equal,
        revision,
    )];
    let mut then = vec![TxnOp::put(row, attributes(), None)];
    match work {
        Work::Create => {
            let entry = format!("{place}/entry/f{number}");
            when.push(Compare::version(entry.clone(), CompareOp::Equal, 0));
            then.push(TxnOp::put(entry, number.to_le_bytes(), None));
            then.push(TxnOp::put(
                format!("{place}/inode/{number}"),
                attributes(),
                None,
            ));
        }
        Work::Commit => {
            let chunk = format!("{place}/chunk/{}", number % 64);
            then.push(TxnOp::put(chunk, vec![0; 48], None));
        }
        Work::Tag => {
            let tag = format!("{place}/tag/step");
            then.push(TxnOp::put(tag, number.to_le_bytes(), None));
        }
        Work::Lookup => return Ok(()),
    }
    let done = client.txn(Txn::new().when(when).and_then(then)).await?;
    ensure!(done.succeeded(), "another client has changed {place}");
    Ok(())
}

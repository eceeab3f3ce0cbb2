//! Checks data servers, and their orders to delete chunks.

use slabfs_model::{ChunkId, ObjectId, ServerId};
use std::collections::HashMap;

use super::chunks::{Claim, Use};
use super::{CheckError, Class, Facts, KnownServer, PAGE, Walk, counters};
use crate::keys;
use crate::placement::RetireKey;
use crate::records::ServerRecord;

/// Reads all data servers.
pub(super) fn read(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    let mut uuids: HashMap<[u8; 16], u64> = HashMap::new();
    walk.each(keys::servers(), PAGE, |walk, key, value| {
        facts.census.servers += 1;
        let Some([id]) = walk.numbers(key, [4]) else {
            return Ok(());
        };
        counters::below(walk, facts.limits.server, id, || {
            format!("data server {id}")
        });
        let Some(record) = walk.record::<ServerRecord>(key, value) else {
            return Ok(());
        };
        if let Some(other) = uuids.insert(record.uuid, id) {
            walk.report(
                Class::Server,
                format!("data server {id}"),
                format!("is the same directory as data server {other}"),
            );
        }
        let known = KnownServer {
            uuid: record.uuid,
            named: false,
        };
        facts.servers.insert(ServerId(id as u32), known);
        Ok(())
    })
}

/// Reads all orders to delete, and checks that they name nothing that is in use.
pub(super) fn check_orders(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    walk.each(keys::all_retired(), PAGE, |walk, key, _| {
        let (server, what) = match RetireKey::parse(key) {
            Ok(order) => order,
            Err(error) => {
                walk.report_key(Class::Unreadable, key, error);
                return Ok(());
            }
        };
        if !facts.servers.contains_key(&server) {
            walk.report(
                Class::Server,
                "an order to delete",
                format!("is for data server {server}, which is not known"),
            );
        }
        match what {
            RetireKey::Chunk(chunk) => facts.claims.push(order(server, chunk)),
            RetireKey::Generation(object, below) => {
                grid(walk, facts, server, object, below.into())?;
            }
            RetireKey::Object(object) => grid(walk, facts, server, object, u64::MAX)?,
        }
        Ok(())
    })
}

fn order(server: ServerId, chunk: ChunkId) -> Claim {
    Claim {
        server,
        chunk,
        ino: ObjectId(0),
        generation: 0,
        order: 0,
        used: Use::Ordered,
    }
}

/// Checks an order to delete the grid chunks of an object of generations below a number.
fn grid(
    walk: &mut Walk<'_>,
    facts: &mut Facts,
    server: ServerId,
    object: ObjectId,
    below: u64,
) -> Result<(), CheckError> {
    let noted = facts.grids.entry((server, object.0)).or_default();
    *noted = below.max(*noted);
    if let Some(inode) = walk.inode(object)?
        && let Ok(there) = inode.object()
        && u64::from(there.info.generation) < below
        // A server that was drained has only copies, which are no longer read.
        && there.info.stripe.contains(&server)
    {
        walk.report(
            Class::Order,
            format!("object {object}"),
            format!(
                "exists at generation {}, and data server {server} is to delete {}",
                there.info.generation,
                if below == u64::MAX {
                    "all of it".to_owned()
                } else {
                    format!("generations below {below}")
                }
            ),
        );
    }
    Ok(())
}

//! Settling: what commits replaced may go, because what replaced it is on disk.

use slabfs_model::{ChunkId, ServerId, Version};

use crate::api::{Ino, MdError, Reply};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::placement::RetireKey;
use crate::records::decode;

/// Chunks in one batch.
const BATCH: usize = 4096;

/// Retires what commits up to `version` replaced.
pub(crate) fn settle(core: &Core, ctx: &Ctx, ino: Ino, version: Version) -> Result<Reply, MdError> {
    loop {
        let mut txn = core.begin(ctx)?;
        if !txn.state.waiting.contains(&ino) {
            return txn.commit(Reply::Done);
        }
        let from = keys::waiting(ino, 0, Version(0), ChunkId(0));
        let to = keys::waiting(ino, u32::MAX, Version(u64::MAX), ChunkId(u64::MAX));
        let all = core.kv.scan(&from, &to, BATCH)?;
        let complete = all.len() < BATCH;
        let (mut done, mut kept) = (0, 0);
        for (key, value) in all {
            let Some([_, _, at, chunk]) = keys::numbers(&key, [8, 4, 8, 8]) else {
                continue;
            };
            if at > version.0 {
                kept += 1;
                continue;
            }
            let server: ServerId = decode(&key, &value)?;
            txn.batch.delete(key);
            txn.retire(server, RetireKey::Chunk(ChunkId(chunk)))?;
            done += 1;
        }
        if complete || done == 0 {
            return txn.commit_then(Reply::Done, |state| {
                if complete && kept == 0 {
                    state.waiting.remove(&ino);
                }
            });
        }
        // More to come: the number of the request belongs to the last batch.
        txn.ctx = Ctx {
            session: txn.ctx.session,
            ..Ctx::SERVICE
        };
        txn.commit(Reply::Done)?;
    }
}

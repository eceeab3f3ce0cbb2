//! Settling: data replaced by commits may be deleted, because the data that replaced it is on disk.
//!
//! A session settles only what it stored itself: what another session's commit replaced waits until that session has
//! synced. What a session that is gone replaced is deleted with the next settle by any other session, since its own
//! will never come.

use slabfs_model::{ChunkId, ServerId, SessionId, Version};

use crate::api::{MdError, op};
use crate::core::{Core, Ctx};
use crate::keys;
use crate::placement::RetireKey;
use crate::records::decode;

/// Chunks in one batch.
const BATCH: usize = 4096;

/// Retires what commits up to `version` replaced.
pub(crate) fn settle(core: &Core, ctx: &Ctx, op: op::Settle) -> Result<(), MdError> {
    let op::Settle { ino, version } = op;
    let caller = ctx.session;
    loop {
        let mut txn = core.begin(ctx)?;
        if !txn.state.waiting.contains(&ino) {
            return txn.commit(());
        }
        let from = keys::waiting(ino, 0, Version(0), ChunkId(0));
        let to = keys::waiting(ino, u32::MAX, Version(u64::MAX), ChunkId(u64::MAX));
        let all = core.kv.scan(&from, &to, BATCH)?;
        let complete = all.len() < BATCH;
        let (mut done, mut waiting) = (0, 0);
        for (key, value) in all {
            let Some([_, _, at, chunk]) = keys::numbers(&key, [8, 4, 8, 8]) else {
                continue;
            };
            let (server, by): (ServerId, SessionId) = decode(&key, &value)?;
            let own = Some(by) == caller || !txn.state.sessions.live.contains_key(&by);
            if at > version.0 || !own {
                waiting += 1;
                continue;
            }
            txn.batch.delete(key);
            txn.retire(server, RetireKey::Chunk(ChunkId(chunk)))?;
            done += 1;
        }
        if complete || done == 0 {
            return txn.commit_then((), |state| {
                if complete && waiting == 0 {
                    state.waiting.remove(&ino);
                }
            });
        }
        // More batches follow: the sequence number of the request belongs to the last one.
        txn.ctx = Ctx {
            session: txn.ctx.session,
            ..Ctx::SERVICE
        };
        txn.commit(())?;
    }
}

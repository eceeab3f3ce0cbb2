//! In-place changes that got no reply: a server may still find them in a socket, and carry them out.
//!
//! A server carries out a change only when those of lower connection epochs of the same session have ended, and refuses
//! these from then on (`server/epochs`). A client that gives up on a request enters a higher epoch. So once a server has
//! replied to a change of the present epoch, none of an earlier one is carried out any more. Before other mounts may
//! write the same bytes, the servers of unanswered changes are therefore sent an empty change.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use slabfs_model::{ObjectId, ServerId};

use super::Servers;
use crate::error::{Result, StoreError};
use crate::name::ChunkName;

/// The objects and servers of changes without a reply.
#[derive(Debug, Default)]
pub(super) struct Unanswered(Mutex<BTreeSet<(ObjectId, ServerId)>>);

impl Servers {
    /// Records that changes of these chunks ended with an error, after which they may still be carried out.
    pub(super) fn note_unanswered<'a>(
        &self,
        error: &StoreError,
        chunks: impl Iterator<Item = (ServerId, &'a ChunkName)>,
    ) {
        if !matches!(error, StoreError::Unavailable { .. }) {
            return;
        }
        let grid = chunks.filter_map(|(server, name)| match name {
            ChunkName::Grid { object, .. } => Some((*object, server)),
            ChunkName::Free(_) => None,
        });
        self.unanswered.0.lock().extend(grid);
    }

    /// Returns when no change of an object's chunks that got no reply can be carried out any more.
    ///
    /// # Errors
    /// Of a server that does not reply in time.
    pub fn end_unanswered(&self, object: ObjectId) -> Result<()> {
        let servers: Vec<ServerId> = {
            let all = self.unanswered.0.lock();
            let of_object = all.range((object, ServerId(0))..);
            of_object
                .take_while(|(of, _)| *of == object)
                .map(|(_, server)| *server)
                .collect()
        };
        for server in servers {
            self.change_nothing(server)?;
            self.unanswered.0.lock().remove(&(object, server));
        }
        Ok(())
    }
}

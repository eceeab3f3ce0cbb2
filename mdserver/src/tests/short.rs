//! Short forms of operations with several arguments, which the tests request hundreds of times: names as literals,
//! arguments by place.

use slabfs_model::{Coords, ServerId, Tag, Version};
use std::time::Duration;

use crate::api::*;
use crate::client::Md;

impl Md {
    pub(crate) fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Entry, MdError> {
        self.call(op::Lookup {
            parent,
            name: name.to_vec(),
        })
    }

    pub(crate) fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Entry, MdError> {
        self.call(op::Link {
            ino,
            parent,
            name: name.to_vec(),
        })
    }

    pub(crate) fn unlink(&self, parent: Ino, name: &[u8]) -> Result<(), MdError> {
        self.call(op::Unlink {
            parent,
            name: name.to_vec(),
        })
        .map(drop)
    }

    pub(crate) fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<(), MdError> {
        self.call(op::Rmdir {
            parent,
            name: name.to_vec(),
        })
    }

    pub(crate) fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<(), MdError> {
        let (name, new_name) = (name.to_vec(), new_name.to_vec());
        self.call(op::Rename {
            parent,
            name,
            new_parent,
            new_name,
            flags,
        })
        .map(drop)
    }

    pub(crate) fn readdir(
        &self,
        ino: Ino,
        cookie: u64,
        limit: u32,
    ) -> Result<Vec<DirEntry>, MdError> {
        self.call(op::ReadDir { ino, cookie, limit })
    }

    pub(crate) fn setattr(&self, ino: Ino, set: SetAttr) -> Result<Entry, MdError> {
        self.call(op::SetAttr { ino, set })
    }

    pub(crate) fn create_many(&self, objects: Vec<NewObject>) -> Result<Vec<Ino>, MdError> {
        self.call(op::CreateMany { objects })
    }

    pub(crate) fn setxattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(), MdError> {
        self.call(op::SetXattr {
            ino,
            name: name.to_vec(),
            value: value.to_vec(),
            flags,
        })
    }

    pub(crate) fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>, MdError> {
        self.call(op::GetXattr {
            ino,
            name: name.to_vec(),
        })
    }

    pub(crate) fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<(), MdError> {
        self.call(op::RemoveXattr {
            ino,
            name: name.to_vec(),
        })
    }

    pub(crate) fn tag(
        &self,
        ino: Ino,
        set: Vec<(String, Tag)>,
        remove: Vec<String>,
    ) -> Result<(), MdError> {
        self.call(op::Tag {
            changes: vec![TagChange { ino, set, remove }],
        })
    }

    pub(crate) fn set_draining(&self, server: ServerId, draining: bool) -> Result<(), MdError> {
        self.call(op::SetDraining { server, draining })
    }

    pub(crate) fn lease_places(
        &self,
        bytes: u64,
        spent: Vec<(ServerId, u64)>,
    ) -> Result<Vec<(ServerId, u64)>, MdError> {
        self.call(op::LeasePlaces { bytes, spent })
    }

    pub(crate) fn resize(
        &self,
        ino: Ino,
        dims: Coords,
        how: ResizeHow,
    ) -> Result<Resized, MdError> {
        self.call(op::Resize { ino, dims, how })
    }

    pub(crate) fn declare(
        &self,
        ino: Ino,
        change: SpecChange,
        rewrite: Option<Rewrite>,
    ) -> Result<Entry, MdError> {
        self.call(op::Declare {
            ino,
            change,
            rewrite,
        })
    }

    pub(crate) fn reserve(&self, ino: Ino, upto: u64) -> Result<ReserveReply, MdError> {
        self.call(op::Reserve { ino, upto })
    }

    pub(crate) fn settle(&self, ino: Ino, version: Version) -> Result<(), MdError> {
        self.call(op::Settle { ino, version })
    }

    pub(crate) fn lock(&self, epoch: LockEpoch, ask: LockAsk) -> Result<LockReply, MdError> {
        self.call(op::Lock { epoch, ask })
    }

    pub(crate) fn cancel_lock(&self, ticket: LockTicket) -> Result<bool, MdError> {
        self.call(op::CancelLock { ticket })
    }

    pub(crate) fn lock_events(
        &self,
        epoch: LockEpoch,
        seen: u64,
        wait: Duration,
    ) -> Result<LockNews, MdError> {
        let wait_ms = op::millis(wait);
        self.call(op::LockEvents {
            epoch,
            seen,
            wait_ms,
        })
    }

    pub(crate) fn reclaim_locks(
        &self,
        held: Vec<HeldLocks>,
        first: bool,
        last: bool,
    ) -> Result<(Vec<LostLocks>, LockEpoch), MdError> {
        let reclaimed = self.call(op::ReclaimLocks { held, first, last })?;
        Ok((reclaimed.lost, reclaimed.epoch))
    }

    pub(crate) fn ask_right(
        &self,
        epoch: RightsEpoch,
        ask: RightAsk,
    ) -> Result<RightReply, MdError> {
        self.call(op::AskRight { epoch, ask })
    }

    pub(crate) fn right_events(
        &self,
        epoch: RightsEpoch,
        seen: u64,
        wait: Duration,
    ) -> Result<RightNews, MdError> {
        let wait_ms = op::millis(wait);
        self.call(op::RightEvents {
            epoch,
            seen,
            wait_ms,
        })
    }

    pub(crate) fn reset_rights(&self, held: Vec<RightHeld>) -> Result<RightsBegun, MdError> {
        self.call(op::ResetRights { held })
    }

    pub(crate) fn report_size(
        &self,
        question: u64,
        unflushed: Option<Unflushed>,
    ) -> Result<(), MdError> {
        self.call(op::ReportSize {
            question,
            unflushed,
        })
    }
}

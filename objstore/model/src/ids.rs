//! Ids as newtypes, so that the ids of objects and chunks cannot be confused.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(
            /// The plain number, for formats and messages.
            pub $inner,
        );

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// An object, a container or another inode; never reused.
    ObjectId(u64)
}
id! {
    /// An immutable chunk of an aligned object; never reused.
    ChunkId(u64)
}
id! {
    /// A session: one mount from attach to detach.
    SessionId(u64)
}
id! {
    /// A number that increases with every change of a tiling.
    Version(u64)
}
id! {
    /// A data server, as numbered by the metadata service.
    ServerId(u32)
}

/// The bit of object and chunk numbers from which on they have the number of a shard.
const SHARD: u32 = 44;
/// The same of session numbers, which have their highest bit above it.
const SHARD_OF_SESSION: u32 = 38;
/// The same of server numbers.
const SHARD_OF_SERVER: u32 = 24;

/// The number of a shard: one of the metadata services among which a filesystem is divided. Shard 0 has the names; the others have
/// objects. Every number that a service assigns contains the number of its shard, and that of an object the shard that has it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct ShardId(
    /// The plain number.
    pub u8,
);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl ShardId {
    /// The shard of names.
    pub const NAMES: ShardId = ShardId(0);

    /// The first object or chunk number of the shard, less one.
    #[must_use]
    pub fn numbers(self) -> u64 {
        u64::from(self.0) << SHARD
    }

    /// A session number of this shard: with the highest bit and the rest of `low`.
    #[must_use]
    pub fn session(self, low: u64) -> u64 {
        let shard = 0xff << SHARD_OF_SESSION;
        low & !shard | u64::from(self.0) << SHARD_OF_SESSION
    }

    /// The first server number of the shard, less one.
    #[must_use]
    pub fn servers(self) -> u32 {
        u32::from(self.0) << SHARD_OF_SERVER
    }
}

impl ObjectId {
    /// The shard that has the object.
    #[must_use]
    pub fn shard(self) -> ShardId {
        ShardId((self.0 >> SHARD) as u8)
    }

    /// The running number, which is the same sequence for objects of all shards.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0 & ((1 << SHARD) - 1)
    }
}

impl ChunkId {
    /// The shard whose object has the chunk.
    #[must_use]
    pub fn shard(self) -> ShardId {
        ShardId((self.0 >> SHARD) as u8)
    }
}

impl SessionId {
    /// The shard that assigned the number, if the filesystem has several.
    #[must_use]
    pub fn shard(self) -> ShardId {
        ShardId((self.0 >> SHARD_OF_SESSION) as u8)
    }
}

impl ServerId {
    /// The shard that assigned the number.
    #[must_use]
    pub fn shard(self) -> ShardId {
        ShardId((self.0 >> SHARD_OF_SERVER) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_their_shard() {
        for shard in [0, 1, 7, 255].map(ShardId) {
            assert_eq!(ObjectId(shard.numbers() + 12_345).shard(), shard);
            let session = SessionId(shard.session(1 << 46 | 0x3f_ffff_ffff));
            assert_eq!((session.shard(), session.0 >> 46), (shard, 1));
            assert_eq!(ServerId(shard.servers() + 9).shard(), shard);
            // JSON represents numbers below this exactly.
            assert!(shard.numbers() + (1 << 44) <= 1 << 53 && session.0 < 1 << 53);
        }
    }
}

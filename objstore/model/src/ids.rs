//! Ids as newtypes, so that an object is never taken for a chunk.

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
            /// The bare number, for formats and messages.
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
    /// An object, a container or another inode; never used again after its end.
    ObjectId(u64)
}
id! {
    /// An immutable chunk of an aligned object; never used again after its end.
    ChunkId(u64)
}
id! {
    /// A session: one mount from attach to detach.
    SessionId(u64)
}
id! {
    /// A number that grows with every change of a tiling.
    Version(u64)
}
id! {
    /// A data server, as the metadata service numbered it.
    ServerId(u32)
}

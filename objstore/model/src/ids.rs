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

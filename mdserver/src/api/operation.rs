//! What an operation of the metadata service is: a type with its reply.
//!
//! Each operation is one declaration in [`super::op`]: its arguments, its [`Effect`] and its reply. A caller says
//! `md.call(op::GetAttr { ino })?` and gets an [`super::Entry`]; the service executes it with the handler that the
//! declaration names.
//!
//! The macro [`operations`] makes of the declarations the structs, and [`super::Op`], the form that a request has on the
//! wire and in process: an enum with a variant for each, in order. The macro [`replies`] does the same for
//! [`super::Reply`], whose variants are the *types* of replies: several operations share one. On the wire a variant is
//! its number, so new ones are declared at the end, and none is removed.

use serde::{Deserialize, Serialize};
use slabfs_model::SessionId;

use super::{Ino, MdError, Metadata, Op, Reply};

/// An operation, by its arguments.
pub trait Operation: Into<Op> {
    /// What it returns.
    type Reply: ReplyType;
}

/// What an operation can return: a variant of [`Reply`], by its content.
pub trait ReplyType: Into<Reply> + TryFrom<Reply, Error = MdError> {}

impl<R: Into<Reply> + TryFrom<Reply, Error = MdError>> ReplyType for R {}

/// What an operation changes. It decides whether a request needs a sequence number, which makes it happen only once,
/// and whether a read-only session may send it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: it keeps the session alive, or waits for events.
    Listens,
    /// Nothing, or what may be done twice: no sequence number.
    Asks,
    /// A mark that may be set twice: no sequence number. Files move because of it.
    Marks,
    /// Only what the session holds, if only in memory.
    Holds,
    /// Files.
    Writes,
}

/// One request of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The requesting session; 0 for [`super::op::Attach`] and [`super::op::RegisterServer`].
    pub session: SessionId,
    /// The session's sequence number of this request, from 1, new for each op that changes something; 0 for those
    /// that do not. A resend has the same number.
    pub seq: u64,
    /// All numbers below this one have been answered and will not be resent: their replies may be dropped from the
    /// reply cache.
    pub done_below: u64,
    /// The operation.
    pub op: Op,
}

impl Request {
    /// A request without a sequence number.
    #[must_use]
    pub fn unnumbered(session: SessionId, op: impl Into<Op>) -> Self {
        Self {
            session,
            seq: 0,
            done_below: 0,
            op: op.into(),
        }
    }
}

/// Does an operation that needs no session.
pub(crate) fn call_without_session<O: Operation>(
    metadata: &dyn Metadata,
    op: O,
) -> Result<O::Reply, MdError> {
    let request = Request::unnumbered(SessionId(0), op);
    metadata.call(request)?.try_into()
}

impl Op {
    /// Whether the op changes something, if only in memory, and so needs a sequence number that makes it happen only
    /// once.
    #[must_use]
    pub fn changes(&self) -> bool {
        matches!(self.effect(), Effect::Holds | Effect::Writes)
    }

    /// Whether the op only keeps the session alive, or waits for events.
    #[must_use]
    pub fn listens(&self) -> bool {
        self.effect() == Effect::Listens
    }

    /// Whether the op changes files, which a read-only session may not.
    #[must_use]
    pub fn writes(&self) -> bool {
        matches!(self.effect(), Effect::Marks | Effect::Writes)
    }

    /// Whether the op changes names, or attributes that may belong to a directory: other sessions may have to drop
    /// cached entries first.
    #[must_use]
    pub fn changes_names(&self) -> bool {
        self.each_changed(|_, _| ())
    }

    /// Calls `each` with the names that the op changes and their directories, and with `None` for inodes whose
    /// attributes it changes, which may be directories; some more than once. Returns false for an op that changes
    /// none.
    pub fn each_changed<'a>(&'a self, mut each: impl FnMut(Ino, Option<&'a [u8]>)) -> bool {
        match self {
            Self::Create(op) => each(op.parent, Some(&op.name)),
            Self::CreateMany(op) => {
                for object in &op.objects {
                    each(object.parent, Some(&object.name));
                }
            }
            Self::Link(op) => each(op.parent, Some(&op.name)),
            Self::Unlink(op) => each(op.parent, Some(&op.name)),
            Self::Rmdir(op) => each(op.parent, Some(&op.name)),
            Self::Rename(op) => {
                each(op.parent, Some(&op.name));
                each(op.new_parent, Some(&op.new_name));
            }
            Self::SetAttr(op) => each(op.ino, None),
            Self::SetXattr(op) => each(op.ino, None),
            Self::RemoveXattr(op) => each(op.ino, None),
            Self::SetDefaults(op) => each(op.ino, None),
            Self::Tag(op) => op.changes.iter().for_each(|change| each(change.ino, None)),
            _ => return false,
        }
        true
    }
}

/// Declares the operations. Each is `EFFECT NAME { ARGUMENTS } -> REPLY => HANDLER;`. An argument whose name and type
/// say what it is has no comment of its own. The handler is a function of the service, in the folder of its subject.
macro_rules! operations {
    ($(
        $(#[$about:meta])*
        $effect:ident $name:ident {
            $( $(#[$about_field:meta])* $field:ident: $type:ty ),* $(,)?
        } -> $reply:ty => $handler:path;
    )*) => {
        $(
            $(#[$about])*
            #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
            #[allow(missing_docs)]
            pub struct $name {
                $( $(#[$about_field])* pub $field: $type, )*
            }

            impl Operation for $name {
                type Reply = $reply;
            }

            impl From<$name> for Op {
                fn from(op: $name) -> Self {
                    Self::$name(op)
                }
            }
        )*

        /// Any operation. The number of a variant is on the wire.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(missing_docs)]
        pub enum Op {
            $( $name($name), )*
        }

        impl Op {
            /// What it changes.
            #[must_use]
            pub fn effect(&self) -> Effect {
                match self {
                    $( Self::$name(_) => Effect::$effect, )*
                }
            }

            /// Executes it, by its handler.
            pub(crate) fn handle(self, core: &Core, ctx: &Ctx) -> Result<Reply, MdError> {
                match self {
                    $( Self::$name(op) => $handler(core, ctx, op).map(Reply::from), )*
                }
            }
        }
    };
}

/// Declares the types of replies, each as `VARIANT(TYPE)`.
macro_rules! replies {
    ($( $name:ident($type:ty), )*) => {
        /// A reply, by its type; each operation has one. The number of a variant is on the wire.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[allow(missing_docs)]
        pub enum Reply {
            /// Done, without data.
            Done,
            $( $name($type), )*
        }

        $(
            impl From<$type> for Reply {
                fn from(reply: $type) -> Self {
                    Self::$name(reply)
                }
            }

            impl TryFrom<Reply> for $type {
                type Error = MdError;

                fn try_from(reply: Reply) -> Result<Self, MdError> {
                    match reply {
                        Reply::$name(reply) => Ok(reply),
                        other => Err(other.unexpected()),
                    }
                }
            }
        )*
    };
}

pub(super) use {operations, replies};

#[cfg(test)]
mod tests {
    use slabfs_model::{ObjectId, Version};

    use super::*;
    use crate::api::{LocksReclaimed, Looked, op};

    fn bytes(op: impl Into<Op>) -> Vec<u8> {
        postcard::to_stdvec(&op.into()).unwrap()
    }

    /// Services and clients of one wire version understand each other whatever was declared since.
    #[test]
    fn operations_and_replies_keep_their_numbers() {
        let (ino, name) = (ObjectId(7), b"ab".to_vec());
        let lookup = op::Lookup {
            parent: ino,
            name: name.clone(),
        };
        assert_eq!(bytes(lookup), [3, 7, 2, b'a', b'b']);
        let version = Version(9);
        assert_eq!(bytes(op::Settle { ino, version }), [39, 7, 9]);
        assert_eq!(bytes(op::Sync {}), [40]);
        let dump = op::Dump {
            ticket: Some(1),
            offset: 300,
        };
        assert_eq!(bytes(dump), [43, 1, 1, 0xac, 2]);
        let look = op::Look { parent: ino, name };
        assert_eq!(bytes(look), [56, 7, 2, b'a', b'b']);
        assert_eq!(bytes(op::Removed { ino, set: None }), [58, 7, 0]);
        let (inos, who) = (vec![ino], None);
        assert_eq!(bytes(op::Paths { inos, who }), [60, 1, 7, 0]);

        let reply = |reply: Reply| postcard::to_stdvec(&reply).unwrap();
        assert_eq!(reply(().into()), [0]);
        assert_eq!(reply(vec![ino].into()), [5, 1, 7]);
        assert_eq!(reply(true.into()), [27, 1]);
        let reclaimed = LocksReclaimed {
            lost: Vec::new(),
            epoch: crate::api::LockEpoch::UNKNOWN,
        };
        assert_eq!(reply(reclaimed.into())[..2], [29, 0]);
        let looked = Looked {
            found: None,
            keep_name: true,
            keep_attributes: false,
        };
        assert_eq!(reply(looked.into()), [33, 0, 1, 0]);
    }
}

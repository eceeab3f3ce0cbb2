//! Tags: what people say about objects and containers, and the search for it.
//!
//! A tag is an extended attribute `user.NAME` (but not `user.slabfs.*`), with a type. `rows` keeps
//! all extended attributes, `change` answers what sets and reads tags.
//!
//! A search (`find`) reads what `plan` says from the index (`candidates`), asks each inode (`subject`) and
//! tells its path (`paths`), once
//! (`seen`). `live` is the index in the service.
//!
//! [`entry`] says what of an inode's tags is in the index, and where in it to look for something;
//! [`index`] is the ordered set of bytes that holds that; [`query`] is the language of searches.

pub mod entry;
pub mod index;
pub mod query;

mod candidates;
mod catchup;
mod change;
mod find;
mod live;
mod paths;
mod plan;
pub(crate) mod rows;
mod seen;
mod subject;

pub(crate) use catchup::each_row;
pub(crate) use change::{tag, tags};
pub(crate) use find::find;
pub(crate) use live::{Entries, Live};

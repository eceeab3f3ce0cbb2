//! Tags of objects and containers, and the search for them.
//!
//! A tag is an extended attribute `user.NAME` (but not `user.slabfs.*`), with a type. `rows` stores all extended
//! attributes, `change` has the operations that set and read tags.
//!
//! A search (`find`) reads the parts of the index that `plan` selects (`candidates`), checks each inode (`subject`)
//! and returns its path (`paths`), once (`seen`). `live` is the index in the service.
//!
//! [`entry`] defines which entries an inode's tags have in the index, and where to look something up; [`index`] is
//! the ordered set of byte strings that stores them; [`query`] is the language of searches.

pub mod entry;
pub mod index;
pub mod query;

mod candidates;
mod catchup;
mod change;
mod find;
mod hit;
mod live;
mod paths;
mod plan;
pub(crate) mod rows;
mod seen;
mod subject;

pub(crate) use catchup::each_row;
pub(crate) use change::{tag, tags};
pub(crate) use find::find;
pub use hit::fits;
pub(crate) use live::{Entries, Live};
pub(crate) use paths::{Paths, paths};

//! Tags: what people say about objects and containers, and the search for it.
//!
//! [`entry`] says what of an inode's tags is in the index, and where in it to look for something.

pub mod entry;

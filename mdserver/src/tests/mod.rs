//! The service as a whole, over a store in memory or on disk.

mod names;
mod support;

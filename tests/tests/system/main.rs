//! Tests of the whole system: real processes, mounts and tools, a module a theme. The harness is the
//! library of this crate.

mod attributes;
mod bad_flags;
mod bad_places;
mod bad_wire;
mod cli;
mod codecs;
mod damage;
mod descriptors;
mod dims;
mod directories;
mod durability;
mod extremes;
mod fsx;
mod full;
mod growth;
mod guide;
mod hangs;
mod journal;
mod mapping;
mod naive;
mod plain;
mod posix;
mod processes;
mod races;
mod real;
mod selections;
mod servers;
mod sparse;
mod streams;
mod syncing;
mod table;
mod tree;
mod two_mounts;
mod two_sizes;
mod users;

//! Tests of the whole system: real processes and mounts. The harness is the crate's library.

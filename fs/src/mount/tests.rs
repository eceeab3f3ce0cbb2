//! Tests of a real mount over services in this process, in two forms: all services in-process, where session threads
//! answer, and all behind sockets, where the pool answers.
//!
//! Each test needs `/dev/fuse`. Where that is missing, a test reports so and succeeds, except under `CI=true`.

mod arrays;
mod call;
mod files;
mod hidden;
mod lifetime;
mod mappings;
mod page_overlap;
mod stage;
mod xattr;

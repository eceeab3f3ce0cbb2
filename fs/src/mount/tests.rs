//! A real mount over services in this process, in the two forms a mount knows: everything at hand, where
//! session threads answer, and everything behind sockets, where the pool does.
//!
//! Each needs `/dev/fuse`. Where it is missing they say so and pass, except under `CI=true`.

mod arrays;
mod call;
mod files;
mod hidden;
mod lifetime;
mod mappings;
mod page_overlap;
mod stage;
mod xattr;

//! Data servers: which one gets a chunk (`place`), how writes in place and a drain stay apart (`permit`), and moving
//! chunks off a server (`drain`).

pub(in crate::client) mod drain;
pub(in crate::client) mod permit;
pub(in crate::client) mod place;

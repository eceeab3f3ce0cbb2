//! The client side of the object store (being written).

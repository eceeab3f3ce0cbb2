//! A mount over services in this process.

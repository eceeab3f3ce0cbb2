//! The search language: what is understood, what is refused and where, what is found.

mod errors;
mod meaning;
mod properties;
mod support;

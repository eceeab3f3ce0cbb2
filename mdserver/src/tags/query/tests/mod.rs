//! Tests of the search language: what is parsed, what is refused and where, what matches.

mod errors;
mod meaning;
mod properties;
mod support;

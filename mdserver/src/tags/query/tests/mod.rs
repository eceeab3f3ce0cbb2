mod errors;
mod meaning;
mod properties;
mod support;

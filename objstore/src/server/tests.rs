//! Tests of the data server.

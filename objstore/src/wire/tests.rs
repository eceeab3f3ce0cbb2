//! Tests of the wire over real sockets.

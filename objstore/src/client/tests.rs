//! Tests of the fan-out over real servers.

//! The data server (being written).

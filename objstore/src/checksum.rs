//! CRC-32C of blocks.

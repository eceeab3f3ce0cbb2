//! Rights: what mounts may keep, and what they have to give back; see `docs/decisions/rights.md`.

//! Write-behind: dirty data of an object before it is a request.
//!
//! `runs` are dirty bytes by range, `stream` a chunk that grows as a writer appends rows (`stream_end` seals it),
//! `overlay` what reads see of both over the committed bytes, `overlap` dirty runs written during a direct write. `flush`
//! takes them out, as boxes (`slabs`, `payload`), and commits them; `write_back` does so before writers have to wait.

pub(in crate::client) mod flush;
pub(in crate::client) mod overlap;
pub(in crate::client) mod overlay;
pub(in crate::client) mod payload;
pub(in crate::client) mod runs;
pub(in crate::client) mod slabs;
pub(in crate::client) mod stream;
pub(in crate::client) mod stream_end;
pub(in crate::client) mod write_back;

//! Memory of other processes on this host, in which they hold chunks for readers (`store/memory/arena.rs`, which describes
//! labels and pins). The only file here with `unsafe`.
//!
//! A chunk is read under a pin: its owner does not use the memory for something else meanwhile. If the label of its block is
//! another one by then, the chunk is gone.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use memmap2::{Advice, MmapOptions, MmapRaw};
use parking_lot::{Mutex, RwLock};
use slabfs_model::{Hyperslab, ServerId};

use crate::error::{Result, StoreError};
use crate::name::ChunkForm;
use crate::store::memory::{PAGE, PINS, number, read_of, show_of};
use crate::store::{MemoryFiles, MemoryPlace};

/// The memory of one server.
#[derive(Debug)]
pub(super) struct Memory {
    arena: MmapRaw,
    labels: MmapRaw,
    pins: MmapRaw,
    /// Holds the lock that shows that this process has not ended.
    _lock: File,
    /// Pins that are not in use.
    idle: Mutex<Vec<u16>>,
}

/// The memory of all servers.
#[derive(Debug, Default, Clone)]
pub(super) struct Memories(Arc<RwLock<HashMap<ServerId, Arc<Memory>>>>);

/// A chunk in the memory of a server.
#[derive(Debug)]
pub(in crate::client) struct MemoryChunk {
    memory: Arc<Memory>,
    place: MemoryPlace,
}

/// A pin; the block does not change while it exists.
struct Pin<'a> {
    memory: &'a Memory,
    at: u16,
}

impl Memories {
    pub(super) fn get(&self, server: ServerId) -> Option<Arc<Memory>> {
        self.0.read().get(&server).cloned()
    }

    /// Maps the memory of a server.
    pub(super) fn add(&self, server: ServerId, files: MemoryFiles) -> Option<Arc<Memory>> {
        match Memory::map(files) {
            Ok(memory) => {
                let memory = Arc::new(memory);
                self.0.write().insert(server, Arc::clone(&memory));
                Some(memory)
            }
            Err(error) => {
                tracing::debug!(%server, %error, "memory of a server on this host cannot be mapped");
                None
            }
        }
    }

    /// Unmaps what is not in use.
    pub(super) fn tidy(&self) {
        let unused = |memory: &Arc<Memory>| Arc::strong_count(memory) == 1;
        if self.0.read().values().any(unused) {
            self.0.write().retain(|_, memory| !unused(memory));
        }
    }

    pub(super) fn clear(&self) {
        self.0.write().clear();
    }
}

fn check(is_well: bool, why: &'static str) -> io::Result<()> {
    match is_well {
        true => Ok(()),
        false => Err(io::Error::other(why)),
    }
}

/// Checks that no process can shorten a file that is mapped: accesses would raise SIGBUS then.
fn check_sealed(file: &File) -> io::Result<()> {
    // SAFETY: an open file, and no memory.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 {
        return Err(io::Error::last_os_error());
    }
    check(seals & libc::F_SEAL_SHRINK != 0, "it may be shortened")
}

fn lock(file: &File) -> io::Result<()> {
    let lock = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    // SAFETY: `lock` is a valid structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Memory {
    fn map(files: MemoryFiles) -> io::Result<Memory> {
        for file in [&files.arena, &files.labels, &files.pins] {
            check_sealed(file)?;
        }
        lock(&files.pins)?;
        let arena = MmapOptions::new().map_raw_read_only(&files.arena)?;
        if let Err(error) = arena.advise(Advice::HugePage) {
            tracing::debug!(%error, "memory of a server is mapped in small pages");
        }
        let labels = MmapOptions::new().map_raw_read_only(&files.labels)?;
        let pins = MmapOptions::new().map_raw(&files.pins)?;
        let pages = arena.len() as u64 / PAGE;
        check(
            labels.len() as u64 >= pages * size_of::<u64>() as u64,
            "labels are missing",
        )?;
        check(pins.len() >= PINS * size_of::<u64>(), "pins are missing")?;
        Ok(Memory {
            arena,
            labels,
            pins,
            _lock: files.pins,
            idle: Mutex::new((0..PINS as u16).collect()),
        })
    }

    /// A chunk; `None` if its place is not in the memory.
    pub(super) fn chunk(self: &Arc<Self>, place: MemoryPlace) -> Option<MemoryChunk> {
        let end = place.at.checked_add(place.len)?;
        let is_inside = end <= self.arena.len() as u64
            && place.page < self.arena.len() as u64 / PAGE
            && place.block != 0;
        is_inside.then(|| MemoryChunk {
            memory: Arc::clone(self),
            place,
        })
    }

    /// Pins a block; `None` if it is gone, or if all pins are in use.
    fn pin(&self, place: &MemoryPlace) -> Option<Pin<'_>> {
        let at = self.idle.lock().pop()?;
        let pin = Pin { memory: self, at };
        number(&self.pins, usize::from(at)).store(place.page + 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let label = number(&self.labels, place.page as usize).load(Ordering::SeqCst);
        (label == place.block).then_some(pin)
    }
}

impl Drop for Pin<'_> {
    fn drop(&mut self) {
        number(&self.memory.pins, usize::from(self.at)).store(0, Ordering::Release);
        self.memory.idle.lock().push(self.at);
    }
}

impl MemoryChunk {
    fn with<T>(&self, f: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
        let Some(_pin) = self.memory.pin(&self.place) else {
            return Err(StoreError::Invalid(
                "it is not in the memory of its server any more".to_owned(),
            ));
        };
        let (at, len) = (self.place.at as usize, self.place.len as usize);
        // SAFETY: it lies in the mapping, as `Memory::chunk` has checked, and its owner writes to it only when it has
        // found no pin after it has changed the label.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory.arena.as_ptr().add(at), len) };
        f(bytes)
    }

    pub(super) fn read(&self, form: &ChunkForm, slab: &Hyperslab, out: &mut [u8]) -> Result<()> {
        self.with(|bytes| read_of(bytes, form, slab, out))
    }

    pub(super) fn show(
        &self,
        form: &ChunkForm,
        slab: &Hyperslab,
        f: &mut dyn FnMut(&[u8]),
    ) -> Result<bool> {
        self.with(|bytes| show_of(bytes, form, slab, f))
    }
}

#[cfg(test)]
mod tests {
    use std::io::IoSlice;
    use std::sync::atomic::AtomicBool;

    use slabfs_model::Codec;

    use super::*;
    use crate::store::conformance::{form, free};
    use crate::store::{ChunkStore, MemoryStore};

    const LEN: usize = 100_000;

    fn put(store: &MemoryStore, id: u64, byte: u8) -> MemoryPlace {
        let form = form(&[LEN as u64], 1, Codec::None, &[]);
        let data = [byte; LEN];
        store
            .put(&free(id), &form, &[IoSlice::new(&data)])
            .expect("put");
        store.same_host_memory(&free(id)).expect("a place")
    }

    fn reader(store: &MemoryStore) -> Arc<Memory> {
        let files = store.memory_files().expect("files").expect("memory");
        Arc::new(Memory::map(files).expect("a mapping"))
    }

    #[test]
    fn what_is_read_is_not_used_again() {
        let store = MemoryStore::new(1 << 20).expect("a store");
        let memory = reader(&store);
        let place = put(&store, 1, 1);
        let chunk = memory.chunk(place).expect("a chunk");
        let read = chunk.with(|bytes| {
            store.delete(&[free(1)]).expect("delete");
            let other = put(&store, 2, 2);
            assert_ne!(other.page, place.page);
            assert!(bytes.iter().all(|byte| *byte == 1));
            Ok(())
        });
        assert_eq!(read, Ok(()));
        assert!(chunk.with(|_| Ok(())).is_err(), "it is deleted");
        assert_eq!(put(&store, 3, 3).page, place.page);
        assert!(
            chunk.with(|_| Ok(())).is_err(),
            "its memory has another chunk"
        );
        store.delete(&[free(2), free(3)]).expect("delete");
    }

    #[test]
    fn places_outside_are_refused() {
        let store = MemoryStore::new(1 << 20).expect("a store");
        let memory = reader(&store);
        let place = put(&store, 1, 1);
        for wrong in [
            MemoryPlace {
                at: 1 << 20,
                ..place
            },
            MemoryPlace {
                at: u64::MAX,
                ..place
            },
            MemoryPlace {
                len: u64::MAX,
                ..place
            },
            MemoryPlace {
                page: u64::MAX,
                ..place
            },
            MemoryPlace { block: 0, ..place },
        ] {
            assert!(memory.chunk(wrong).is_none(), "{wrong:?}");
        }
    }

    /// Chunks come and go while others read them.
    #[test]
    fn readers_see_one_chunk_or_none() {
        let store = MemoryStore::new(1 << 20).expect("a store");
        let over = AtomicBool::new(false);
        let current: Mutex<Option<(MemoryPlace, u8)>> = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let memory = reader(&store);
                    let mut seen = 0;
                    while !over.load(Ordering::Relaxed) || seen == 0 {
                        let Some((place, byte)) = *current.lock() else {
                            continue;
                        };
                        let chunk = memory.chunk(place).expect("a chunk");
                        let read = chunk.with(|bytes| {
                            let wrong = bytes.iter().filter(|one| **one != byte).count();
                            assert_eq!(wrong, 0, "another chunk's bytes");
                            Ok(())
                        });
                        seen += usize::from(read.is_ok());
                    }
                });
            }
            for round in 0..3000u64 {
                let byte = (round % 251) as u8;
                let place = put(&store, round, byte);
                *current.lock() = Some((place, byte));
                if round > 1 {
                    store.delete(&[free(round - 2)]).expect("delete");
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}

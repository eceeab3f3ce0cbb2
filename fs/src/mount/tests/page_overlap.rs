//! Tests of writes that overlap pages of the kernel, with a simulated kernel that acts at the worst moments.

use std::ops::Range;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use slabfs_mdserver::api::{Ino, ROOT};

use super::stage::{BOTH, Stage};
use crate::client::{Caches, ClientOptions, Consistency, Handle, OpenMode};

const PAGE: usize = 4096;

/// Simulates the kernel: it holds one page.
struct Kernel {
    handle: Arc<Handle>,
    epoch: u64,
    page: Mutex<Vec<u8>>,
    dropped: Mutex<Vec<Range<u64>>>,
}

impl Kernel {
    /// Reads the page, as a page fault does.
    fn fault(&self) {
        let mut page = Vec::new();
        let mut take = |bytes: &[u8]| page.extend_from_slice(bytes);
        self.handle.read_page(0, PAGE, &mut take).unwrap();
        *self.page.lock() = page;
    }

    /// Changes a byte, as a store of a program does, and writes the full page back.
    fn store_and_write_back(&self, at: usize, byte: u8) {
        let mut page = self.page.lock().clone();
        page[at] = byte;
        self.handle.write_page(self.epoch, 0, &page).unwrap();
    }
}

impl Caches for Kernel {
    fn drop_all(&self, _: Option<slabfs_model::ShardId>) {}

    fn discard_all(&self, _: Option<slabfs_model::ShardId>) {}

    fn drop_pages(&self, _ino: Ino, bytes: Range<u64>) {
        let times = {
            let mut dropped = self.dropped.lock();
            dropped.push(bytes);
            dropped.len()
        };
        match times {
            // It reads another page at once.
            1 => {
                self.store_and_write_back(1, 9);
                self.fault();
            }
            2 => self.store_and_write_back(2, 8),
            _ => {}
        }
    }

    fn retain(&self, _ino: Ino, _change: Option<u64>) {}

    fn forget_names(&self) -> bool {
        true
    }
}

#[test]
fn dirty_pages_go_before_a_write_and_stale_pages_do_not_survive_it() {
    for services in BOTH {
        for consistency in [Consistency::Strict, Consistency::Commit] {
            let options = ClientOptions {
                consistency,
                ..ClientOptions::default()
            };
            let Some(stage) = Stage::with(services, options) else {
                return;
            };
            std::fs::write(stage.path("f"), vec![1; 3 * PAGE]).unwrap();
            let ino = stage.client.lookup(ROOT, b"f").unwrap().attr.ino;
            let mode = OpenMode {
                write: true,
                append: false,
            };
            let handle = stage.client.open(ino, mode, None).unwrap();
            let kernel = Arc::new(Kernel {
                handle: handle.clone(),
                epoch: stage.client.epoch(),
                page: Mutex::default(),
                dropped: Mutex::default(),
            });
            let caches: Arc<dyn Caches> = kernel.clone();
            stage.client.set_caches(Arc::downgrade(&caches));
            handle.write(3, &[6]).unwrap();
            assert!(kernel.dropped.lock().is_empty(), "it has no page");
            kernel.fault();
            assert_eq!(kernel.page.lock()[..4], [1, 1, 1, 6]);
            assert!(handle.try_write(None, 3, &[7]).unwrap().is_none());
            handle.write(3, &[7]).unwrap();
            // The second drop is for the page that was read during the first.
            let under = 3..4;
            assert_eq!(*kernel.dropped.lock(), [under.clone(), under]);
            handle.write(4, &[5]).unwrap();
            handle.write(PAGE as u64, &[5]).unwrap();
            assert_eq!(
                kernel.dropped.lock().len(),
                3,
                "the rest of the page was still there"
            );
            let mut seen = Vec::new();
            let mut take = |bytes: &[u8]| seen.extend_from_slice(bytes);
            handle.read(0, 6, &mut take).unwrap();
            assert_eq!(seen, [1, 9, 8, 7, 5, 1], "{services:?}, {consistency:?}");
            let gone: Weak<dyn Caches> = Weak::<Kernel>::new();
            stage.client.set_caches(gone);
            handle.release().unwrap();
        }
    }
}

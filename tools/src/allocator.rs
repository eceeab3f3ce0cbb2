//! The global allocator: mimalloc, called without an alignment where possible.
//!
//! The crate's own wrapper names an alignment with each request. mimalloc 3 then checks each size again,
//! allocates a larger block where the size is no power of two, and marks that block, which slows down freeing
//! too. Every block is aligned to a word already, and nearly all requests ask for no more.
//!
//! Invariant: a request for more than a word's alignment goes through the crate's wrapper. A block that one
//! path allocated may be freed or grown by the other, because both use the same heap.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys as mi;
use mimalloc::MiMalloc;

/// mimalloc, for `#[global_allocator]`.
pub(crate) struct Allocator;

/// Alignment that every block has.
const WORD: usize = size_of::<usize>();

// SAFETY: all memory is mimalloc's, which fulfils the contract of an allocator: blocks are disjoint, stay valid
// until they are freed, and are null when there is no memory. Blocks of the calls without an alignment are
// aligned to a word at least (their sizes are multiples of a word, and they begin at a word), and those calls
// serve requests of no greater alignment.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils GlobalAlloc's contract, which includes that of these functions.
        unsafe {
            if layout.align() <= WORD {
                mi::mi_malloc(layout.size()).cast()
            } else {
                MiMalloc.alloc(layout)
            }
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as in `alloc`.
        unsafe {
            if layout.align() <= WORD {
                mi::mi_zalloc(layout.size()).cast()
            } else {
                MiMalloc.alloc_zeroed(layout)
            }
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block is of this allocator, so of mimalloc.
        unsafe { MiMalloc.dealloc(block, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`; the new size obeys the caller's contract.
        unsafe {
            if layout.align() <= WORD {
                mi::mi_realloc(block.cast(), new_size).cast()
            } else {
                MiMalloc.realloc(block, layout, new_size)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_aligned_zeroed_on_request_and_keep_their_contents_when_grown() {
        for align in [1, 2, 4, 8, 16, 64, 4096] {
            for size in (1..200).chain([1000, 1024, 1032, 5000, 70_000, 3 << 20]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                let grown = 2 * size + 1;
                // SAFETY: the size is not zero, the layout is that of the block, and only written bytes are
                // read.
                unsafe {
                    let block = Allocator.alloc_zeroed(layout);
                    assert_eq!(block as usize % align, 0, "{layout:?}");
                    assert!((0..size).all(|at| *block.add(at) == 0), "{layout:?}");
                    block.write_bytes(7, size);
                    let block = Allocator.realloc(block, layout, grown);
                    assert_eq!(block as usize % align, 0, "{layout:?} grown");
                    assert!((0..size).all(|at| *block.add(at) == 7), "{layout:?}");
                    Allocator.dealloc(block, Layout::from_size_align(grown, align).unwrap());
                }
            }
        }
    }
}

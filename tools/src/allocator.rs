//! The allocator: mimalloc, asked in its quick way.
//!
//! The crate's own wrapper names an alignment with each request. mimalloc 3 then looks at each size anew,
//! takes a larger piece where the size is no power of two, and notes that, so that freeing is slower too.
//! Whatever it gives is aligned to a word already, which is all that nearly everything asks for.
//!
//! What it keeps true: a request for more than a word's alignment goes the crate's way, and a piece that
//! came one way may be freed or grown the other way, as it is one heap.

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys as mi;
use mimalloc::MiMalloc;

/// mimalloc, for `#[global_allocator]`.
pub(crate) struct Allocator;

/// What any piece is aligned to.
const WORD: usize = size_of::<usize>();

// SAFETY: all memory is of mimalloc, which keeps the contract of an allocator: pieces are disjoint, live until
// they are freed, and null where there is none. Those of the unaligned calls are aligned to a word at least
// (blocks are whole words, and begin at words), and those calls are made for no greater alignment.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps GlobalAlloc's contract, which is that of these.
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
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: the piece is of this allocator, so of mimalloc.
        unsafe { MiMalloc.dealloc(piece, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: as in `dealloc`, and the new size is as the caller's contract has it.
        unsafe {
            if layout.align() <= WORD {
                mi::mi_realloc(piece.cast(), new_size).cast()
            } else {
                MiMalloc.realloc(piece, layout, new_size)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_hold_what_they_held_and_begin_with_zeros() {
        for align in [1, 2, 4, 8, 16, 64, 4096] {
            for size in (1..200).chain([1000, 1024, 1032, 5000, 70_000, 3 << 20]) {
                let layout = Layout::from_size_align(size, align).unwrap();
                let grown = 2 * size + 1;
                // SAFETY: the size is not zero, the layout that of the piece, and what is read was written.
                unsafe {
                    let piece = Allocator.alloc_zeroed(layout);
                    assert_eq!(piece as usize % align, 0, "{layout:?}");
                    assert!((0..size).all(|at| *piece.add(at) == 0), "{layout:?}");
                    piece.write_bytes(7, size);
                    let piece = Allocator.realloc(piece, layout, grown);
                    assert_eq!(piece as usize % align, 0, "{layout:?} grown");
                    assert!((0..size).all(|at| *piece.add(at) == 7), "{layout:?}");
                    Allocator.dealloc(piece, Layout::from_size_align(grown, align).unwrap());
                }
            }
        }
    }
}

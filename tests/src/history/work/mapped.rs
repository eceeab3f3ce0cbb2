//! Cells on both sides of the boundary of two pages, through a mapping and by system calls.

use super::Desk;
use super::object::Object;

/// Cells of 8 bytes: those up to 511 are in one page, the others in the next.
const FIRST: [u64; 3] = [509, 510, 511];
const SECOND: [u64; 3] = [512, 513, 514];

/// The first page is only written through the mapping, the second only by system calls.
pub(super) fn apart(desk: &mut Desk) {
    play(desk, &FIRST, &SECOND);
}

/// Both pages by both kinds of access.
pub(super) fn mixed(desk: &mut Desk) {
    let all = [FIRST, SECOND].concat();
    play(desk, &all, &all);
}

/// Uses a mapping of some cells, and writes some.
fn play(desk: &mut Desk, mapped: &[u64], written: &[u64]) {
    let mut object = Object::open(desk, 1024, 8);
    object.map();
    let all = [FIRST, SECOND].concat();
    for _ in 0..desk.task.operations {
        let [map, write, read] = [mapped, written, &all].map(|of| *desk.random.pick(of));
        match desk.random.range(0, 16) {
            0..4 => object.load(desk, map),
            4..8 => object.store(desk, map),
            8..11 => object.read(desk, read, read + 1),
            11..14 => object.write(desk, write, write + 1),
            14 => object.sync(desk),
            _ => object.flush_map(desk),
        }
    }
    desk.peers.barrier();
    for &cell in mapped {
        object.load(desk, cell);
    }
    for &cell in &all {
        object.read(desk, cell, cell + 1);
    }
}

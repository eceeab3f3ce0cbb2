//! Cells around the border of two pages, through a mapping and by system calls.

use super::Desk;
use super::object::Object;

/// The first of these cells is in one page, the others in the next.
const CELLS: [u64; 6] = [509, 510, 511, 512, 513, 514];

pub(super) fn work(desk: &mut Desk) {
    let mut object = Object::open(desk, 1024, 8);
    object.map();
    for _ in 0..desk.task.operations {
        let cell = *desk.random.pick(&CELLS);
        match desk.random.range(0, 16) {
            0..4 => object.load(desk, cell),
            4..8 => object.store(desk, cell),
            8..11 => object.read(desk, cell, cell + 1),
            11..14 => object.write(desk, cell, cell + 1),
            14 => object.sync(desk),
            _ => object.flush_map(desk),
        }
    }
    desk.peers.barrier();
    for cell in CELLS {
        object.load(desk, cell);
        object.read(desk, cell, cell + 1);
    }
}

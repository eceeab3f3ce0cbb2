//! Reads and writes of overlapping cells, by offset and through selections.

use super::Desk;
use super::object::{Object, Region};

/// Cells on a side of the array, and bytes of a cell: all of it is one request, and several pages.
pub(super) const SIDE: u64 = 4;
pub(super) const WIDTH: usize = 512;

pub(super) fn work(desk: &mut Desk) {
    let mut object = Object::open(desk, SIDE, WIDTH);
    for _ in 0..desk.task.operations {
        match desk.random.range(0, 8) {
            0..3 => {
                let (from, to) = run(desk);
                object.read(desk, from, to);
            }
            3 => {
                let region = region(desk);
                object.read_selection(desk, region);
            }
            4..7 => {
                let (from, to) = run(desk);
                object.write(desk, from, to);
            }
            _ => {
                let region = region(desk);
                object.write_selection(desk, region);
            }
        }
        match desk.random.range(0, 6) {
            0 => object.settle(desk),
            1 => object.renew(desk),
            _ => {}
        }
    }
    finish(desk, &mut object);
}

/// A random run of consecutive cells.
pub(super) fn run(desk: &mut Desk) -> (u64, u64) {
    let from = desk.random.range(0, SIDE * SIDE);
    (from, desk.random.range(from, SIDE * SIDE) + 1)
}

/// A random box of cells.
fn region(desk: &mut Desk) -> Region {
    [(); 2].map(|()| {
        let from = desk.random.range(0, SIDE);
        (from, desk.random.range(from, SIDE) + 1)
    })
}

/// After all have written: all workers see the same, by every kind of access.
pub(super) fn finish(desk: &mut Desk, object: &mut Object) {
    object.settle(desk);
    desk.peers.barrier();
    object.renew(desk);
    object.read(desk, 0, SIDE * SIDE);
    object.read_selection(desk, [(0, SIDE); 2]);
}

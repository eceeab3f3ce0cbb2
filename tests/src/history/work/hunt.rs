//! Everything at once on the same cells: readers, writers, mappings, and queries of the size.
//!
//! The roles are assigned such that each is played on each mount if there are enough workers. The cells are
//! few, in different pages, some of them alone in theirs and some not.

use super::Desk;
use super::object::Object;
use crate::history::{Answer, Call};

/// Of an array of 64 rows of 512 cells of 8 bytes: a row is a page.
const CELLS: [u64; 8] = [0, 1, 511, 512, 513, 5000, 20_000, 32_767];

pub(super) fn work(desk: &mut Desk) {
    let mut object = Object::open(desk, 512, 8);
    let part = (desk.task.process / desk.task.mounts + desk.task.process) % 4;
    if part == 2 {
        object.map();
    }
    for _ in 0..desk.task.operations {
        let cell = *desk.random.pick(&CELLS);
        match (part, desk.random.range(0, 16)) {
            (0, 0) => {
                let (row, column) = (cell / 512, cell % 512);
                object.read_selection(desk, [(row, row + 1), (column, column + 1)]);
            }
            (0, 1) => object.reopen(desk),
            (0, _) => object.read(desk, cell, cell + 1),
            (1, 0) => object.sync(desk),
            (1, 1) => object.reopen(desk),
            (1, _) => object.write(desk, cell, cell + 1),
            (2, 0) => object.flush_map(desk),
            (2, 1..8) => object.store(desk, cell),
            (2, _) => object.load(desk, cell),
            _ => look(desk),
        }
    }
    desk.peers.barrier();
    for cell in CELLS {
        object.read(desk, cell, cell + 1);
    }
}

/// The attributes, by name; the size never changes.
fn look(desk: &mut Desk) {
    let (name, path) = (desk.name(), desk.task.object.clone());
    desk.note(&name, Call::Stat, || {
        match std::fs::metadata(&path)?.len() {
            0x40000 => Ok(Answer::Done),
            size => Ok(Answer::Unknown(format!("a size of {size}"))),
        }
    });
}

//! Each worker writes its own bytes, every one next to another worker's: in the end all have to be right.

use super::Desk;
use super::object::Object;

const ROWS: u64 = 8;
const COLUMNS: u64 = 16;

pub(super) fn work(desk: &mut Desk) {
    let mut object = Object::open(desk, COLUMNS, 1);
    let (process, processes) = (u64::from(desk.task.process), u64::from(desk.task.processes));
    let own = ROWS * COLUMNS / processes;
    for _ in 0..desk.task.operations {
        let cell = desk.random.range(0, own) * processes + process;
        let value = desk.random.range(1, 256);
        match desk.random.range(0, 4) {
            0 => object.read(desk, cell, cell + 1),
            1 => {
                let (row, column) = (cell / COLUMNS, cell % COLUMNS);
                object.write_selection_value(desk, [(row, row + 1), (column, column + 1)], value);
            }
            _ => object.write_value(desk, cell, cell + 1, value),
        }
        if desk.random.one_in(8) {
            object.settle(desk);
        }
    }
    object.settle(desk);
    desk.peers.barrier();
    object.renew(desk);
    object.read(desk, 0, ROWS * COLUMNS);
    object.read_selection(desk, [(0, ROWS), (0, COLUMNS)]);
}

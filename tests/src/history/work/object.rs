//! An array of cells that a worker has open: cells are read and written by offset, through selections, or
//! through a mapping.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;

use super::Desk;
use crate::file::{self, named};
use crate::history::op::TORN;
use crate::history::{Answer, Call, How};

/// A box of cells: rows and columns, each a half-open range.
pub(super) type Region = [(u64, u64); 2];

/// The open object. All words of a cell have the same value, or it is torn.
#[derive(Debug)]
pub(super) struct Object {
    name: String,
    path: PathBuf,
    columns: u64,
    /// Bytes of a cell: 1, or a multiple of 8.
    width: usize,
    file: Option<File>,
    map: Option<MmapMut>,
}

impl Object {
    /// Opens it.
    pub(super) fn open(desk: &mut Desk, columns: u64, width: usize) -> Object {
        let mut object = Object {
            name: desk.name(),
            path: desk.task.object.clone(),
            columns,
            width,
            file: None,
            map: None,
        };
        object.open_handle(desk);
        object
    }

    fn open_handle(&mut self, desk: &mut Desk) {
        let mut opened = Err(Error::other("not tried"));
        let (path, slot) = (&self.path, &mut opened);
        desk.note(&self.name, Call::Open, move || {
            *slot = open(path);
            answer(slot.as_ref().map(drop))
        });
        self.file = Some(opened.expect("the object opens"));
    }

    /// The open handle.
    pub(super) fn file(&self) -> &File {
        self.file.as_ref().expect("it is open")
    }

    /// Maps it; it must not be reopened from then on.
    pub(super) fn map(&mut self) {
        self.map = Some(file::map(self.file()).expect("mapped"));
    }

    /// If the promise requires it: publishes the writes, by `fsync` or by closing.
    pub(super) fn settle(&mut self, desk: &mut Desk) {
        if desk.commits() {
            if desk.random.one_in(2) {
                self.sync(desk);
            } else {
                self.reopen(desk);
            }
        }
    }

    /// If the promise requires it: opens it again, to see what others published.
    pub(super) fn renew(&mut self, desk: &mut Desk) {
        if desk.commits() {
            self.reopen(desk);
        }
    }

    /// Closes and opens it.
    pub(super) fn reopen(&mut self, desk: &mut Desk) {
        self.close(desk);
        self.open_handle(desk);
    }

    /// `fsync`.
    pub(super) fn sync(&mut self, desk: &mut Desk) {
        let file = self.file.as_ref().expect("it is open");
        desk.note(&self.name, Call::Sync, || {
            answer(file.sync_all().as_ref().map(drop))
        });
    }

    fn close(&mut self, desk: &mut Desk) {
        let file = self.file.take().expect("it is open");
        desk.note(&self.name, Call::Close, || {
            answer(file::close(file).as_ref().map(drop))
        });
    }

    /// Writes a new value into consecutive cells.
    pub(super) fn write(&mut self, desk: &mut Desk, from: u64, to: u64) {
        let value = desk.fresh();
        self.write_value(desk, from, to, value);
    }

    /// Writes a value into consecutive cells.
    pub(super) fn write_value(&mut self, desk: &mut Desk, from: u64, to: u64, value: u64) {
        let cells = (from as u32..to as u32).collect();
        let bytes = self.bytes(value, to - from);
        let (file, at) = (
            self.file.as_ref().expect("it is open"),
            from * self.width as u64,
        );
        let call = Call::Write {
            cells,
            value,
            how: How::Call,
        };
        desk.note(&self.name, call, || {
            complete(file.write_at(&bytes, at)?, bytes.len())
        });
    }

    /// Reads consecutive cells.
    pub(super) fn read(&mut self, desk: &mut Desk, from: u64, to: u64) {
        let cells = (from as u32..to as u32).collect();
        let (file, at) = (
            self.file.as_ref().expect("it is open"),
            from * self.width as u64,
        );
        let (mut bytes, width) = (vec![0; (to - from) as usize * self.width], self.width);
        desk.note(
            &self.name,
            Call::Read {
                cells,
                how: How::Call,
            },
            || {
                complete(file.read_at(&mut bytes, at)?, bytes.len())?;
                Ok(Answer::Values(values(&bytes, width)))
            },
        );
    }

    /// Writes a new value into a box of cells, through a selection that is opened and closed.
    pub(super) fn write_selection(&mut self, desk: &mut Desk, region: Region) {
        let value = desk.fresh();
        self.write_selection_value(desk, region, value);
    }

    /// Writes a value into a box of cells, through a selection that is opened and closed.
    pub(super) fn write_selection_value(&mut self, desk: &mut Desk, region: Region, value: u64) {
        let cells = self.cells(region);
        let bytes = self.bytes(value, cells.len() as u64);
        let path = self.selection(region);
        let call = Call::Write {
            cells,
            value,
            how: How::Selection,
        };
        desk.note(&self.name, call, || {
            let file = open(&path)?;
            let written = complete(file.write_at(&bytes, 0)?, bytes.len());
            file::close(file)?;
            written
        });
    }

    /// Reads a box of cells, through a selection that is opened and closed.
    pub(super) fn read_selection(&mut self, desk: &mut Desk, region: Region) {
        let cells = self.cells(region);
        let (path, width) = (self.selection(region), self.width);
        let mut bytes = vec![0; cells.len() * width];
        desk.note(
            &self.name,
            Call::Read {
                cells,
                how: How::Selection,
            },
            || {
                let file = File::open(&path)?;
                complete(file.read_at(&mut bytes, 0)?, bytes.len())?;
                Ok(Answer::Values(values(&bytes, width)))
            },
        );
    }

    /// Stores a new value into one cell of the mapping.
    pub(super) fn store(&mut self, desk: &mut Desk, cell: u64) {
        let value = desk.fresh();
        let word = self.word(cell);
        let call = Call::Write {
            cells: vec![cell as u32],
            value,
            how: How::Mapped,
        };
        desk.note(&self.name, call, || {
            word.store(value.to_le(), Ordering::SeqCst);
            Ok(Answer::Done)
        });
    }

    /// Loads one cell of the mapping.
    pub(super) fn load(&mut self, desk: &mut Desk, cell: u64) {
        let word = self.word(cell);
        let call = Call::Read {
            cells: vec![cell as u32],
            how: How::Mapped,
        };
        desk.note(&self.name, call, || {
            Ok(Answer::Values(vec![u64::from_le(
                word.load(Ordering::SeqCst),
            )]))
        });
    }

    /// `msync` of the mapping.
    pub(super) fn flush_map(&mut self, desk: &mut Desk) {
        let map = self.map.as_ref().expect("it is mapped");
        desk.note(&self.name, Call::Sync, || {
            answer(map.flush().as_ref().map(drop))
        });
    }

    fn word(&self, cell: u64) -> &AtomicU64 {
        let map = self.map.as_ref().expect("it is mapped");
        let word = &map[cell as usize * 8..][..8];
        // SAFETY: eight bytes of the mapping, aligned because the mapping is, changed only as atomics by this
        // process; concurrent changes by other processes are the purpose.
        unsafe { AtomicU64::from_ptr(word.as_ptr().cast_mut().cast()) }
    }

    fn selection(&self, [rows, columns]: Region) -> PathBuf {
        let name = format!("@[{}:{},{}:{}]", rows.0, rows.1, columns.0, columns.1);
        named(&self.path, &name)
    }

    fn cells(&self, [rows, columns]: Region) -> Vec<u32> {
        let row =
            |row| (columns.0..columns.1).map(move |column| (row * self.columns + column) as u32);
        (rows.0..rows.1).flat_map(row).collect()
    }

    fn bytes(&self, value: u64, cells: u64) -> Vec<u8> {
        let word = value.to_le_bytes();
        let len = cells as usize * self.width;
        word[..self.width.min(8)]
            .iter()
            .copied()
            .cycle()
            .take(len)
            .collect()
    }
}

/// The value of each cell.
fn values(bytes: &[u8], width: usize) -> Vec<u64> {
    let value = |cell: &[u8]| {
        let mut word = [0; 8];
        let size = width.min(8);
        word[..size].copy_from_slice(&cell[..size]);
        let same = cell.chunks(size).all(|other| other == &word[..size]);
        if same { u64::from_le_bytes(word) } else { TORN }
    };
    bytes.chunks(width).map(value).collect()
}

fn open(path: &Path) -> Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn answer(result: std::result::Result<(), &Error>) -> Result<Answer> {
    match result {
        Ok(()) => Ok(Answer::Done),
        Err(error) => Err(Error::from_raw_os_error(error.raw_os_error().unwrap_or(0))),
    }
}

/// `Done` if all bytes were transferred: the workers' requests are small.
fn complete(done: usize, asked: usize) -> Result<Answer> {
    if done == asked {
        Ok(Answer::Done)
    } else {
        Err(Error::other(format!("{done} bytes of {asked}")))
    }
}

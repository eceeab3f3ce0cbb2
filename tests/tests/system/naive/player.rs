//! Random operations on one object and on the naive array.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use slabfs_tests::array::{Array, Select, same};
use slabfs_tests::{Random, file};

/// The kind of object, and how many operations.
pub(super) struct Plan {
    pub(super) dims: &'static [u64],
    pub(super) elem: usize,
    pub(super) dtype: &'static str,
    pub(super) fill: (&'static str, &'static [u8]),
    pub(super) more: &'static [&'static str],
    pub(super) steps: u32,
    pub(super) restarts: u64,
    pub(super) seed: u64,
}

/// Handles that stay open over many steps, like those of a running program.
pub(super) struct Player<'a> {
    plan: &'a Plan,
    pub(super) array: Array,
    pub(super) random: Random,
    pub(super) handles: Vec<File>,
    /// Open selections, each with the position of its program.
    selected: Vec<(Select, File, usize)>,
    done: Vec<String>,
}

impl<'a> Player<'a> {
    pub(super) fn new(plan: &'a Plan) -> Player<'a> {
        Player {
            plan,
            array: Array::new(plan.dims, plan.elem, plan.fill.1),
            random: Random::new(plan.seed),
            handles: Vec::new(),
            selected: Vec::new(),
            done: Vec::new(),
        }
    }

    pub(super) fn context(&self, what: &str) -> String {
        let from = self.done.len().saturating_sub(25);
        format!(
            "{what} (seed {}, {:?}, after …\n{})",
            self.plan.seed,
            self.plan.more,
            self.done[from..].join("\n")
        )
    }

    pub(super) fn say(&mut self, what: String) {
        self.done.push(what);
    }

    /// A handle that is open already, or a new one which sometimes stays open.
    fn with_handle(&mut self, object: &Path, f: impl FnOnce(&File)) {
        if !self.handles.is_empty() && self.random.one_in(2) {
            let at = self.random.range(0, self.handles.len() as u64) as usize;
            f(&self.handles[at]);
            return;
        }
        let handle = file::open(object);
        f(&handle);
        if self.handles.len() < 3 && self.random.one_in(3) {
            self.handles.push(handle);
        } else {
            if let Err(error) = file::close(handle) {
                panic!("{}", self.context(&format!("closing: {error}")));
            }
        }
    }

    pub(super) fn step(&mut self, object: &Path) {
        match self.random.range(0, 100) {
            0..22 => self.write_selection(object),
            22..30 => self.write_on(object),
            30..50 => self.write_plain(object),
            50..60 => self.write_rows(object),
            60..80 => self.read(object),
            80..88 => self.resize(object),
            88..90 => self.empty(object),
            90..94 => self.sync(object),
            _ => self.close_one(),
        }
    }

    fn write_selection(&mut self, object: &Path) {
        let select = Select::random(&self.array.dims, &mut self.random);
        let len = select.count() as usize * self.array.elem;
        let bytes = self.random.bytes(len);
        let path = select.of(object);
        // All of it at once, or in pieces of any order.
        let mut cuts = vec![0, len];
        if self.random.one_in(3) {
            cuts.extend((0..3).map(|_| self.random.range(0, len as u64 + 1) as usize));
        }
        cuts.sort_unstable();
        let mut parts: Vec<(usize, usize)> = cuts
            .windows(2)
            .map(|w| (w[0], w[1]))
            .filter(|(a, b)| a < b)
            .collect();
        if self.random.one_in(2) {
            parts.reverse();
        }
        self.say(format!("selection {} in {parts:?}", select.text()));
        let handle = file::open(&path);
        for (from, to) in parts {
            let written = handle.write_all_at(&bytes[from..to], from as u64);
            assert!(written.is_ok(), "{}", self.context(&format!("{written:?}")));
        }
        self.array.put(&select, 0, &bytes);
        if self.random.one_in(4) {
            let seen = file::read(object);
            same(&self.context("before close"), &seen, &self.array.bytes);
        }
        if let Err(error) = file::close(handle) {
            panic!("{}", self.context(&format!("closing: {error}")));
        }
    }

    /// Through a selection that stays open: from its position, or anywhere.
    fn write_on(&mut self, object: &Path) {
        if self.selected.len() < 2 {
            let select = Select::random(&self.array.dims, &mut self.random);
            let handle = file::open(&select.of(object));
            self.selected.push((select, handle, 0));
        }
        let at = self.random.range(0, self.selected.len() as u64) as usize;
        let len = self.selected[at].0.count() * self.array.elem as u64;
        let next = self.selected[at].2 as u64;
        let from = if self.random.one_in(4) {
            self.random.range(0, len + 1)
        } else {
            next
        };
        let to = self.random.range(from, len + 1);
        let bytes = self.random.bytes((to - from) as usize);
        self.say(format!(
            "open selection {} {from}..{to}",
            self.selected[at].0.text()
        ));
        let (select, handle, next) = &mut self.selected[at];
        handle
            .write_all_at(&bytes, from)
            .expect("a write through an open selection");
        *next = to as usize;
        self.array.put(select, from as usize, &bytes);
        if self.random.one_in(3) {
            self.close_selected();
        }
    }

    pub(super) fn close_selected(&mut self) {
        for (select, handle, _) in std::mem::take(&mut self.selected) {
            if let Err(error) = file::close(handle) {
                panic!(
                    "{}",
                    self.context(&format!("closing {}: {error}", select.text()))
                );
            }
        }
    }

    fn write_plain(&mut self, object: &Path) {
        let size = self.array.bytes.len() as u64;
        let from = self.random.range(0, size);
        let most = if self.random.one_in(5) { size } else { 200 };
        let to = self.random.range(from, size.min(from + most) + 1);
        let bytes = self.random.bytes((to - from) as usize);
        self.say(format!("plain {from}..{to}"));
        self.with_handle(object, |handle| {
            handle.write_all_at(&bytes, from).expect("a plain write")
        });
        self.array.put_plain(from as usize, &bytes);
    }

    fn write_rows(&mut self, object: &Path) {
        let row = self.array.row();
        let rows = self.array.dims.first().copied().unwrap_or(1);
        let from = self.random.range(0, rows) as usize;
        let to = self.random.range(from as u64, rows + 1) as usize;
        let width = self.random.range(0, row as u64 + 1) as usize;
        let left = self.random.range(0, (row - width) as u64 + 1) as usize;
        self.say(format!("rows {from}..{to}, {width} bytes from {left}"));
        let lines: Vec<(usize, Vec<u8>)> = (from..to)
            .map(|i| (i * row + left, self.random.bytes(width)))
            .collect();
        self.with_handle(object, |handle| {
            for (at, bytes) in &lines {
                handle.write_all_at(bytes, *at as u64).expect("a row");
            }
        });
        for (at, bytes) in lines {
            self.array.put_plain(at, &bytes);
        }
    }

    fn read(&mut self, object: &Path) {
        let size = self.array.bytes.len();
        match self.random.range(0, 3) {
            0 => same(&self.context("all"), &file::read(object), &self.array.bytes),
            1 => {
                let select = Select::random(&self.array.dims, &mut self.random);
                let found = file::read(&select.of(object));
                same(
                    &self.context(&select.text()),
                    &found,
                    &self.array.get(&select),
                );
            }
            _ => {
                let from = self.random.range(0, size as u64) as usize;
                let to = self.random.range(from as u64, size as u64 + 1) as usize;
                let mut found = vec![0; to - from];
                self.with_handle(object, |handle| {
                    handle
                        .read_exact_at(&mut found, from as u64)
                        .expect("a read")
                });
                same(
                    &self.context(&format!("{from}..{to}")),
                    &found,
                    &self.array.bytes[from..to],
                );
            }
        }
    }

    fn resize(&mut self, object: &Path) {
        self.close_selected();
        let mut dims = self.array.dims.clone();
        // One file in canonical order: rows do not move, so that only their number can change.
        let axes = if self.plan.more.contains(&"canonical") {
            1
        } else {
            dims.len()
        };
        for (dim, first) in dims.iter_mut().zip(self.plan.dims).take(axes) {
            if self.random.one_in(2) {
                *dim = self.random.range(first / 2, first * 3 / 2 + 1);
            }
        }
        let text: Vec<String> = dims.iter().map(u64::to_string).collect();
        self.say(format!("dims {}", text.join(",")));
        if self.random.one_in(3) && dims[1..] == self.array.dims[1..] {
            // Complete rows of the slowest axis: the size determines them.
            let rows = dims[0] * self.array.row() as u64;
            self.with_handle(object, |handle| handle.set_len(rows).expect("truncate"));
        } else {
            file::set_xattr(object, "user.slabfs.resize", text.join(","), 0).expect("new dims");
        }
        self.array.resize(&dims);
    }

    fn empty(&mut self, object: &Path) {
        self.close_selected();
        self.say("emptied".to_owned());
        file::close(File::create(object).expect("O_TRUNC")).expect("closing");
        // The slowest axis is unlimited: it becomes 0. The others stay.
        let mut dims = self.array.dims.clone();
        let size = object.metadata().expect("its size").len();
        if size == 0 {
            dims[0] = 0;
            self.array.resize(&dims);
            let text: Vec<String> = self.plan.dims.iter().map(u64::to_string).collect();
            file::set_xattr(object, "user.slabfs.resize", text.join(","), 0).expect("new dims");
            self.array.resize(self.plan.dims);
        } else {
            self.array.clear();
        }
    }

    fn sync(&mut self, object: &Path) {
        self.say("fsync".to_owned());
        self.with_handle(object, |handle| handle.sync_all().expect("fsync"));
    }

    fn close_one(&mut self) {
        if let Some(handle) = self.handles.pop() {
            file::close(handle).expect("closing");
        }
    }
}

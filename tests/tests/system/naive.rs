//! Random operations on N-D objects against the naive array: writes through selections (also stepped),
//! plain offsets, rows, several handles at once, changes of dims, truncation, `fsync`, restarts; both
//! layouts, all codecs, several servers. What failed is repeated with the seed in the message.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use slabfs_tests::array::{Array, Select, same};
use slabfs_tests::tool::create;
use slabfs_tests::{Cluster, Random, Up, file, needs_mount, slabfs};

/// Where the object lives: something that can be stopped and started in several ways.
trait Home {
    fn object(&self) -> PathBuf;
    fn restart(&mut self, random: &mut Random);
}

struct InUp(Up);

impl Home for InUp {
    fn object(&self) -> PathBuf {
        self.0.at("object")
    }

    /// In order, or by SIGKILL: the caller has synced.
    fn restart(&mut self, random: &mut Random) {
        if random.one_in(2) {
            self.0.stop();
        } else {
            self.0.kill9();
        }
        self.0.start_again();
    }
}

struct InCluster(Cluster);

impl Home for InCluster {
    fn object(&self) -> PathBuf {
        self.0.at(0, "object")
    }

    /// One of the processes; clients of a server wait until it is back.
    fn restart(&mut self, random: &mut Random) {
        match random.range(0, 4) {
            0 => {
                self.0.kill_md();
                self.0.start_md();
            }
            1 => {
                self.0.kill_server(1);
                self.0.start_server(1);
            }
            2 => {
                self.0.kill_mount(0);
                self.0.start_mount(0);
            }
            _ => {
                self.0.stop_mount(0);
                self.0.start_mount(0);
            }
        }
    }
}

/// What kind of object, and how hard.
struct Plan {
    dims: &'static [u64],
    elem: usize,
    dtype: &'static str,
    fill: (&'static str, &'static [u8]),
    more: &'static [&'static str],
    steps: u32,
    restarts: u64,
    seed: u64,
}

/// Handles that stay open over many steps, as those of a running program.
struct Player<'a> {
    plan: &'a Plan,
    array: Array,
    random: Random,
    handles: Vec<File>,
    /// Open selections, with where a program that writes on from there is.
    selected: Vec<(Select, File, usize)>,
    done: Vec<String>,
}

impl Player<'_> {
    fn context(&self, what: &str) -> String {
        let from = self.done.len().saturating_sub(25);
        format!(
            "{what} (seed {}, {:?}, after …\n{})",
            self.plan.seed,
            self.plan.more,
            self.done[from..].join("\n")
        )
    }

    fn say(&mut self, what: String) {
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

    fn step(&mut self, object: &Path) {
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
        // All of it at once, or in pieces that may stand in any order.
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

    /// Through a selection that stays open: on from where it is, or anywhere.
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

    fn close_selected(&mut self) {
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
            0 => same(
                &self.context("whole"),
                &file::read(object),
                &self.array.bytes,
            ),
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
        // One file in canonical order: rows stay where they are, so that only their number can change.
        let axes = if self.plan.more.contains(&"canonical") {
            1
        } else {
            dims.len()
        };
        for axis in 0..axes {
            if self.random.one_in(2) {
                dims[axis] = self
                    .random
                    .range(self.plan.dims[axis] / 2, self.plan.dims[axis] * 3 / 2 + 1);
            }
        }
        let text: Vec<String> = dims.iter().map(u64::to_string).collect();
        self.say(format!("dims {}", text.join(",")));
        if self.random.one_in(3) && dims[1..] == self.array.dims[1..] {
            // Whole rows of the slowest axis: the size says it.
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
        // The slowest axis is unlimited: it keeps nothing. The others stay.
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

fn play(home: &mut dyn Home, plan: &Plan) {
    let object = home.object();
    let dims: Vec<String> = plan.dims.iter().map(u64::to_string).collect();
    let unlimited = vec!["unlimited"; plan.dims.len()].join(",");
    let mut more = vec!["--max-dims", &unlimited];
    if !plan.fill.0.is_empty() {
        more.extend(["--fill", plan.fill.0]);
    }
    more.extend(plan.more);
    create(&object, &dims.join(","), plan.dtype, &more);
    let mut player = Player {
        plan,
        array: Array::new(plan.dims, plan.elem, plan.fill.1),
        random: Random::new(plan.seed),
        handles: Vec::new(),
        selected: Vec::new(),
        done: Vec::new(),
    };
    for step in 0..plan.steps {
        player.step(&object);
        let size = object.metadata().expect("its size").len();
        assert_eq!(
            size,
            player.array.bytes.len() as u64,
            "{}",
            player.context("size")
        );
        if u64::from(step) % (u64::from(plan.steps) / (plan.restarts + 1)) == 1 && step > 1 {
            player.close_selected();
            player
                .handles
                .drain(..)
                .for_each(|handle| file::close(handle).expect("closing"));
            file::open(&object).sync_all().expect("fsync");
            player.say("restart".to_owned());
            home.restart(&mut player.random);
            same(
                &player.context("after a restart"),
                &file::read(&object),
                &player.array.bytes,
            );
        }
    }
    player.close_selected();
    player.handles.clear();
    same(
        &player.context("at the end"),
        &file::read(&object),
        &player.array.bytes,
    );
}

fn in_up(plan: Plan) {
    needs_mount!();
    play(&mut InUp(Up::with(&["--servers", "2"])), &plan);
}

const F8_NAN: (&str, &[u8]) = ("nan", &[0, 0, 0, 0, 0, 0, 0xf8, 0x7f]);

#[test]
fn aligned() {
    in_up(Plan {
        dims: &[23, 17],
        elem: 4,
        dtype: "i4",
        fill: ("-1", &[0xff; 4]),
        more: &[],
        steps: 700,
        restarts: 4,
        seed: 101,
    });
}

#[test]
fn aligned_of_rank_three() {
    in_up(Plan {
        dims: &[7, 11, 5],
        elem: 8,
        dtype: "f8",
        fill: F8_NAN,
        more: &[],
        steps: 500,
        restarts: 3,
        seed: 102,
    });
}

#[test]
fn aligned_of_rank_one() {
    in_up(Plan {
        dims: &[701],
        elem: 3,
        dtype: "V3",
        fill: ("", &[]),
        more: &[],
        steps: 400,
        restarts: 2,
        seed: 103,
    });
}

#[test]
fn aligned_of_rank_five() {
    in_up(Plan {
        dims: &[3, 4, 2, 5, 3],
        elem: 2,
        dtype: "u2",
        fill: ("", &[]),
        more: &[],
        steps: 300,
        restarts: 2,
        seed: 104,
    });
}

#[test]
fn grid() {
    in_up(Plan {
        dims: &[23, 17],
        elem: 4,
        dtype: "i4",
        fill: ("-1", &[0xff; 4]),
        more: &["--layout", "grid:5,8"],
        steps: 700,
        restarts: 4,
        seed: 105,
    });
}

#[test]
fn grid_of_rank_three() {
    in_up(Plan {
        dims: &[7, 11, 6],
        elem: 8,
        dtype: "f8",
        fill: F8_NAN,
        more: &["--layout", "grid:2,3,4"],
        steps: 500,
        restarts: 3,
        seed: 106,
    });
}

#[test]
fn canonical() {
    in_up(Plan {
        dims: &[23, 17],
        elem: 4,
        dtype: "u4",
        fill: ("", &[]),
        more: &["--layout", "canonical"],
        steps: 600,
        restarts: 3,
        seed: 107,
    });
}

#[test]
fn shuffle_and_zstd() {
    in_up(Plan {
        dims: &[23, 17],
        elem: 4,
        dtype: "f4",
        fill: ("", &[]),
        more: &["--codec", "shuffle+zstd:3"],
        steps: 500,
        restarts: 3,
        seed: 108,
    });
}

#[test]
fn lz4() {
    in_up(Plan {
        dims: &[9, 10, 11],
        elem: 2,
        dtype: "i2",
        fill: ("7", &[7, 0]),
        more: &["--codec", "lz4"],
        steps: 400,
        restarts: 2,
        seed: 109,
    });
}

#[test]
fn deflate() {
    in_up(Plan {
        dims: &[40, 30],
        elem: 1,
        dtype: "u1",
        fill: ("", &[]),
        more: &["--codec", "deflate:6"],
        steps: 400,
        restarts: 2,
        seed: 110,
    });
}

/// Large enough that rows stream past memory, and that boxes are cut.
#[test]
fn large_rows() {
    in_up(Plan {
        dims: &[40, 30_011],
        elem: 8,
        dtype: "f8",
        fill: ("", &[]),
        more: &[],
        steps: 70,
        restarts: 1,
        seed: 111,
    });
}

#[test]
fn large_chunks_of_a_grid() {
    in_up(Plan {
        dims: &[40, 30_011],
        elem: 8,
        dtype: "f8",
        fill: ("", &[]),
        more: &["--layout", "grid:16,4096"],
        steps: 70,
        restarts: 1,
        seed: 112,
    });
}

#[test]
fn large_rows_with_a_codec() {
    in_up(Plan {
        dims: &[40, 30_011],
        elem: 4,
        dtype: "f4",
        fill: ("-1", &[0, 0, 0x80, 0xbf]),
        more: &["--codec", "shuffle+lz4"],
        steps: 60,
        restarts: 1,
        seed: 113,
    });
}

#[test]
fn separate_processes() {
    needs_mount!();
    for (seed, layout) in [(201, "aligned"), (202, "grid:6,7")] {
        let more: &'static [&'static str] = if layout == "aligned" {
            &[]
        } else {
            &["--layout", "grid:6,7"]
        };
        let plan = Plan {
            dims: &[23, 17],
            elem: 4,
            dtype: "i4",
            fill: ("-1", &[0xff; 4]),
            more,
            steps: 400,
            restarts: 4,
            seed,
        };
        play(&mut InCluster(Cluster::start(3, 1)), &plan);
    }
}

/// A byte object through its one-axis selections and plain offsets.
#[test]
fn byte_objects_have_selections_too() {
    needs_mount!();
    let up = Up::start();
    let object = up.at("bytes");
    let mut array = Array::new(&[10_000], 1, &[]);
    let mut random = Random::new(301);
    array.bytes = random.bytes(10_000);
    file::write(&object, &array.bytes);
    for _ in 0..60 {
        let select = Select::random(&[10_000], &mut random);
        let bytes = random.bytes(select.count() as usize);
        file::write(&select.of(&object), &bytes);
        array.put(&select, 0, &bytes);
        let select = Select::random(&[10_000], &mut random);
        same(
            &select.text(),
            &file::read(&select.of(&object)),
            &array.get(&select),
        );
    }
    same("whole", &file::read(&object), &array.bytes);
    let told = slabfs(["info", "--json", &object.display().to_string()])
        .ok()
        .json();
    assert_eq!(told["kind"], "bytes");
}

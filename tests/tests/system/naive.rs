//! Random operations on N-D objects against the naive array: writes through selections (also stepped), plain
//! offsets, rows, several handles at once, changes of dims, truncation, `fsync`, restarts; both layouts, all
//! codecs, several servers. A failure can be repeated with the seed in the message.

use std::path::PathBuf;

use slabfs_tests::array::{Array, Select, same};
use slabfs_tests::tool::create;
use slabfs_tests::{Cluster, Random, Up, file, needs_mount, slabfs};

mod player;

use player::{Plan, Player};

/// The services that hold the object, which can be restarted in several ways.
trait Backend {
    fn object(&self) -> PathBuf;
    fn restart(&mut self, random: &mut Random);
}

struct InUp(Up);

impl Backend for InUp {
    fn object(&self) -> PathBuf {
        self.0.at("object")
    }

    /// Cleanly, or by SIGKILL: the caller has synced.
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

impl Backend for InCluster {
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

fn play(backend: &mut dyn Backend, plan: &Plan) {
    let object = backend.object();
    let dims: Vec<String> = plan.dims.iter().map(u64::to_string).collect();
    let unlimited = vec!["unlimited"; plan.dims.len()].join(",");
    let mut more = vec!["--max-dims", &unlimited];
    if !plan.fill.0.is_empty() {
        more.extend(["--fill", plan.fill.0]);
    }
    more.extend(plan.more);
    create(&object, &dims.join(","), plan.dtype, &more);
    let mut player = Player::new(plan);
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
            backend.restart(&mut player.random);
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

/// Large enough that rows are streamed, and that boxes are cut.
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
    same("all", &file::read(&object), &array.bytes);
    let output = slabfs(["info", "--json", &object.display().to_string()])
        .ok()
        .json();
    assert_eq!(output["kind"], "byte object");
}

//! Random operations, compared with a reference model of plain arrays in memory.

use std::collections::BTreeMap;

use slabfs_model::{Axis, Codec, Hyperslab, gather, scatter};

use super::{Random, fill, form, free, grid, in_file, noise, read, slices, smooth};
use crate::checksum::sums_of_blocks;
use crate::error::StoreError;
use crate::name::{ChunkForm, ChunkName};
use crate::store::{ChunkStore, SUMMED};

/// The expected state of a chunk.
#[derive(Debug, Clone)]
pub struct Model {
    /// Its form.
    pub form: ChunkForm,
    /// All its bytes; for a stream, those so far.
    pub bytes: Vec<u8>,
    /// For a free chunk: whether it is sealed.
    pub sealed: bool,
}

/// The expected content of the store.
pub type World = BTreeMap<ChunkName, Model>;

/// Runs `steps` random operations with comparisons in between, then deletes all chunks.
pub fn run(store: &dyn ChunkStore, seed: u64, steps: usize) {
    let mut random = Random::new(seed);
    let mut world = World::new();
    for _ in 0..steps {
        step(store, &mut random, &mut world);
    }
    compare(store, &world);
    let names: Vec<_> = world.into_keys().collect();
    store.delete(&names).expect("delete");
}

/// Compares all chunks with the model.
pub fn compare(store: &dyn ChunkStore, world: &World) {
    for (name, model) in world {
        let len = model.bytes.len() as u64;
        let row = model.form.shape[1];
        let rows = Hyperslab {
            axes: [Axis::span(0, len / row), Axis::span(0, row)]
                .into_iter()
                .collect(),
        };
        assert!(
            read(store, name, &model.form, &rows) == model.bytes,
            "{name} differs"
        );
        store.verify(name).expect("verify");
    }
}

/// Applies one random operation to the store and the model alike.
pub fn step(store: &dyn ChunkStore, random: &mut Random, world: &mut World) {
    let id = random.below(12);
    match random.below(20) {
        0..3 => put(store, random, world, &free(10_000 + id)),
        3..6 => stream(store, random, world, &free(20_000 + id)),
        6..12 => write(
            store,
            random,
            world,
            &grid(200 + id, (id % 2) as u32, &[id]),
        ),
        12 => clear(
            store,
            random,
            world,
            &grid(200 + id, (id % 2) as u32, &[id]),
        ),
        13 => remove(store, random, world),
        14 => {
            let names: Vec<_> = world
                .keys()
                .filter(|_| random.below(3) == 0)
                .cloned()
                .collect();
            store.sync(&names).expect("sync");
        }
        _ => look(store, random, world),
    }
}

fn pick(random: &mut Random, world: &World) -> Option<ChunkName> {
    let at = random.below(world.len().max(1) as u64) as usize;
    world.keys().nth(at).cloned()
}

fn shape(random: &mut Random) -> [u64; 2] {
    let rows = [1, 3, 40, 300][random.below(4) as usize];
    [rows, [12, 500, 4096, 9000][random.below(4) as usize]]
}

fn codec(random: &mut Random) -> Codec {
    [
        Codec::None,
        Codec::None,
        Codec::Lz4,
        Codec::ShuffleZstd(1),
        Codec::Deflate(1),
    ][random.below(5) as usize]
}

fn bytes(random: &mut Random, len: u64) -> Vec<u8> {
    let make = if random.below(2) == 0 { noise } else { smooth };
    make(len as usize, random.next())
}

fn slab(random: &mut Random, shape: &[u64]) -> Hyperslab {
    let full_rows = random.below(3) == 0;
    let axes = shape.iter().enumerate().map(|(i, &len)| {
        if i == 1 && full_rows {
            return Axis::span(0, len);
        }
        let start = random.below(len);
        let room = len - start;
        if random.below(4) == 0 && room > 3 {
            let block = 1 + random.below(room / 3);
            let stride = block + random.below(3);
            return Axis {
                start,
                stride,
                count: 1 + (room - block) / stride,
                block,
            };
        }
        Axis::span(start, 1 + random.below(room))
    });
    Hyperslab {
        axes: axes.collect(),
    }
}

fn put(store: &dyn ChunkStore, random: &mut Random, world: &mut World, name: &ChunkName) {
    if world.contains_key(name) {
        return;
    }
    let shape = shape(random);
    let form = form(&shape, 4, codec(random), &[]);
    let bytes = bytes(random, shape[0] * shape[1]);
    let blank = match shape[1] {
        9000 => store.blank(name, &form).expect("blank"),
        _ => None,
    };
    match blank {
        Some(blank) => {
            fill(&blank, &bytes);
            // A file that is never filled.
            drop(store.blank(name, &form));
            // Every other chunk with the writer's checksums.
            let sums = match name {
                ChunkName::Free(id) if id.0 % 2 == 0 => sums_of_blocks(&slices(&bytes), SUMMED),
                _ => Vec::new(),
            };
            store.adopt(blank, &sums).expect("adopt");
        }
        None => store.put(name, &form, &slices(&bytes)).expect("put"),
    }
    world.insert(
        name.clone(),
        Model {
            form,
            bytes,
            sealed: true,
        },
    );
}

/// Appends rows to a stream, or seals it.
fn stream(store: &dyn ChunkStore, random: &mut Random, world: &mut World, name: &ChunkName) {
    let row = 5000;
    let entry = world.entry(name.clone());
    let model = entry.or_insert_with(|| Model {
        form: form(&[200, row], 4, codec(random), &[]),
        bytes: Vec::new(),
        sealed: false,
    });
    let rows = model.bytes.len() as u64 / row;
    if model.sealed {
        return;
    }
    if rows > 0 && random.below(4) == 0 {
        let rows = 1 + random.below(rows);
        model.form.shape[0] = rows;
        store.seal(name, &model.form).expect("seal");
        model.bytes.truncate((rows * row) as usize);
        model.sealed = true;
        return;
    }
    let rows = (1 + random.below(30)).min(200 - rows);
    let more = bytes(random, rows * row);
    store
        .append(name, &model.form, model.bytes.len() as u64, &slices(&more))
        .expect("append");
    model.bytes.extend_from_slice(&more);
}

fn write(store: &dyn ChunkStore, random: &mut Random, world: &mut World, name: &ChunkName) {
    let model = world.entry(name.clone()).or_insert_with(|| {
        let shape = shape(random);
        let pattern: &[u8] = if random.below(3) == 0 {
            &[1, 2, 3, 4]
        } else {
            &[]
        };
        let form = form(&shape, 4, Codec::None, pattern);
        Model {
            bytes: filled(&form),
            form,
            sealed: false,
        }
    });
    let slab = slab(random, &model.form.shape);
    let data = bytes(random, slab.volume());
    store
        .write(name, &model.form, &slab, &slices(&data))
        .expect("write");
    scatter(&data, &slab, &mut model.bytes, &model.form.shape);
}

fn filled(form: &ChunkForm) -> Vec<u8> {
    let mut bytes = vec![0; form.volume().unwrap_or(0) as usize];
    let all = Hyperslab::all(&form.shape);
    slabfs_model::fill_slab(&mut bytes, &form.shape, &all, &form.fill);
    bytes
}

/// Punches or clips.
fn clear(store: &dyn ChunkStore, random: &mut Random, world: &mut World, name: &ChunkName) {
    let Some(model) = world.get_mut(name) else {
        return;
    };
    let shape = model.form.shape.clone();
    let blank = filled(&model.form);
    let slab = if random.below(2) == 0 {
        let slab = slab(random, &shape);
        store.punch(name, &model.form, &slab).expect("punch");
        let mut fill = vec![0; slab.volume() as usize];
        gather(&blank, &shape, &slab, &mut fill);
        scatter(&fill, &slab, &mut model.bytes, &shape);
        return;
    } else {
        [random.below(shape[0] + 1), random.below(shape[1] + 1)]
    };
    store.clip(name, &model.form, &slab).expect("clip");
    for (at, byte) in model.bytes.iter_mut().enumerate() {
        let (row, column) = (at as u64 / shape[1], at as u64 % shape[1]);
        if row >= slab[0] || column >= slab[1] {
            *byte = blank[at];
        }
    }
}

/// Checks that unallocated bytes are zero.
fn allocated(store: &dyn ChunkStore, random: &mut Random, name: &ChunkName, model: &Model) {
    if !model.form.fill.is_zero() || matches!(name, ChunkName::Free(_)) {
        return;
    }
    let len = model.bytes.len() as u64;
    let mut at = random.below(len + 1);
    while at < len {
        let found = store.allocated(name, at).expect("allocated");
        let (first, upto) = found.next.unwrap_or((u64::MAX, u64::MAX));
        assert!(first >= at && upto >= first, "{found:?} from {at}");
        let hole = &model.bytes[at as usize..first.min(len) as usize];
        assert!(hole.iter().all(|&b| b == 0), "{name}: {found:?} from {at}");
        at = upto;
    }
}

fn remove(store: &dyn ChunkStore, random: &mut Random, world: &mut World) {
    let Some(name) = pick(random, world) else {
        return;
    };
    world.remove(&name);
    store.delete(std::slice::from_ref(&name)).expect("delete");
    let form = form(&[1, 1], 1, Codec::None, &[]);
    let slab = Hyperslab::all(&form.shape);
    assert_eq!(
        store.read(&name, &form, &slab, &mut [0]),
        Err(StoreError::Missing(name))
    );
}

fn look(store: &dyn ChunkStore, random: &mut Random, world: &World) {
    let Some(name) = pick(random, world) else {
        return;
    };
    let model = &world[&name];
    let row = model.form.shape[1];
    let shape = [model.bytes.len() as u64 / row, row];
    let slab = slab(random, &shape);
    let mut want = vec![0; slab.volume() as usize];
    gather(&model.bytes, &shape, &slab, &mut want);
    assert!(
        read(store, &name, &model.form, &slab) == want,
        "{slab:?} of {name} differs"
    );
    let mut shown = false;
    let was_called = store
        .show(&name, &model.form, &slab, &mut |bytes| {
            shown = bytes == want
        })
        .expect("show");
    assert_eq!(was_called, shown, "{slab:?} of {name} is shown differently");
    let in_file = in_file(store, &name, &model.form, &slab);
    allocated(store, random, &name, model);
    let fixed = matches!(name, ChunkName::Free(_));
    assert!(
        in_file.is_none_or(|bytes| fixed && bytes == want),
        "{slab:?} of {name} differs in its file"
    );
}

//! Tests of commits and tilings, against a model array.

use proptest::prelude::*;
use slabfs_model::layout::tiling::Tiling;
use slabfs_model::{Axis, Coords, Hyperslab, Region, Version};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::support::*;
use crate::api::op::Commit;
use crate::api::{Ino, MdError, ResizeHow, Stored, TilingReply, WantedPart, op};
use crate::client::Md;
use crate::kv::MemoryKv;
use crate::service::{Service, ServiceOptions};

/// For each cell the chunk that the tiling shows there; 0 for none.
fn shown(tiling: &Tiling<Stored>, dims: &[u64; 2]) -> Vec<u64> {
    let mut cells = Vec::new();
    for y in 0..dims[0] {
        for x in 0..dims[1] {
            let (mut parts, mut holes) = (Vec::new(), Vec::new());
            tiling.plan(&slab(&[y, x], &[1, 1]), &mut parts, &mut holes);
            cells.push(match parts.last().map(|part| &part.record.value) {
                Some(Stored::Chunk(chunk)) => chunk.chunk.0,
                Some(Stored::Fill | Stored::Dropped) | None => 0,
            });
        }
    }
    cells
}

fn full_tiling(md: &Md, ino: Ino) -> Tiling<Stored> {
    let mut tiling = Tiling::new(0);
    md.tiling(ino, Version(0))
        .unwrap()
        .apply(&mut tiling)
        .unwrap();
    tiling
}

#[test]
fn a_commit_is_in_the_tiling() {
    let (_service, md) = ready();
    let ino = array(&md, "a", &[8, 8]);
    let (first, reply) = put(&md, ino, &[0, 0], &[4, 8]).unwrap();
    assert_eq!(reply.version.0, reply.before.0 + 1);
    assert_eq!((reply.first_order, reply.dropped.len()), (0, 0));
    assert_eq!((reply.attr.size, reply.attr.stored), (64, 32));
    assert!(reply.info.holds);
    let (second, reply) = put(&md, ino, &[0, 0], &[4, 8]).unwrap();
    assert_eq!((reply.first_order, reply.dropped), (1, vec![0]));
    assert_eq!(reply.attr.stored, 32);
    assert_ne!(first, second);
    let tiling = full_tiling(&md, ino);
    assert_eq!(tiling.len(), 1);
    assert_eq!(shown(&tiling, &[8, 8])[0], second.0);
}

/// A chunk may reach beyond the part of the object that it is for, and beyond the object.
#[test]
fn a_record_shows_its_clip_only() {
    let (_service, md) = ready();
    let ino = array(&md, "a", &[8, 8]);
    let (below, _) = put(&md, ino, &[0, 0], &[8, 8]).unwrap();
    let with_clips = |clips: Vec<Option<Region>>| {
        let lease = md.call(op::LeaseChunks { count: 1 }).unwrap();
        let commit = Commit {
            records: vec![(slab(&[2, 4], &[4, 6]), stored(&lease, 0))],
            clips,
            ..commit_of(&md, ino)
        };
        md.call(commit).map(|_| lease.first)
    };
    let two = vec![None, None];
    assert!(matches!(with_clips(two), Err(MdError::Invalid(_))));
    let shape = vec![Some(Region::new(&[2], &[1]))];
    assert!(matches!(with_clips(shape), Err(MdError::Invalid(_))));
    let above = with_clips(vec![Some(Region::new(&[3, 0], &[2, 20]))]).unwrap();
    let cells = shown(&full_tiling(&md, ino), &[8, 8]);
    for y in 0..8 {
        for x in 0..8 {
            let is_above = (3..5).contains(&y) && x >= 4;
            let expected = if is_above { above } else { below };
            assert_eq!(cells[y * 8 + x], expected.0, "{y} {x}");
        }
    }
}

#[test]
fn bad_commits_change_nothing() {
    let (_service, md) = ready();
    let ino = array(&md, "a", &[8, 8]);
    let before = md.call(op::GetAttr { ino }).unwrap();
    let lease = md.call(op::LeaseChunks { count: 4 }).unwrap();
    let try_with = |change: &dyn Fn(&mut crate::api::Commit)| {
        let mut commit = commit_of(&md, ino);
        commit.records = vec![(slab(&[0, 0], &[1, 1]), stored(&lease, 0))];
        change(&mut commit);
        md.call(commit).unwrap_err()
    };
    let invalid = |error: MdError| matches!(error, MdError::Invalid(_));
    assert!(invalid(try_with(
        &|commit| commit.records[0].0 = slab(&[0], &[1])
    )));
    assert!(invalid(try_with(
        &|commit| commit.records[0].0 = slab(&[0, 0], &[0, 1])
    )));
    assert!(invalid(try_with(
        &|commit| commit.records[0].0 = slab(&[u64::MAX, 0], &[2, 1])
    )));
    assert!(invalid(try_with(
        &|commit| commit.records[0].1 = stored(&lease, 9)
    )));
    assert!(invalid(try_with(&|commit| {
        if let Stored::Chunk(chunk) = &mut commit.records[0].1 {
            chunk.server = slabfs_model::ServerId(9);
        }
    })));
    assert!(invalid(try_with(&|commit| commit
        .records
        .push(commit.records[0].clone()))));
    assert_eq!(try_with(&|commit| commit.generation += 1), MdError::Stale);
    assert!(matches!(
        try_with(&|commit| commit.grow_to = Some(Coords::from_slice(&[9, 8]))),
        MdError::TooBig(_)
    ));
    assert!(matches!(
        try_with(&|commit| commit.size_at_least = 65),
        MdError::TooBig(_)
    ));
    assert_eq!(md.call(op::GetAttr { ino }).unwrap(), before);
    assert!(full_tiling(&md, ino).is_empty());
    // The id is still valid.
    let mut commit = commit_of(&md, ino);
    commit.records = vec![(slab(&[0, 0], &[1, 1]), stored(&lease, 0))];
    md.call(commit.clone()).unwrap();
    assert!(invalid(md.call(commit).unwrap_err()));
}

#[test]
fn a_commit_beyond_a_shrunk_object_is_cut() {
    let (_service, md) = ready();
    let ino = array(&md, "a", &[8, 8]);
    md.resize(ino, Coords::from_slice(&[4, 8]), ResizeHow::SetDims)
        .unwrap();
    let (chunk, _) = put(&md, ino, &[2, 0], &[4, 8]).unwrap();
    let (_, reply) = put(&md, ino, &[6, 0], &[1, 8]).unwrap();
    assert_eq!(reply.dropped, [1]);
    md.resize(ino, Coords::from_slice(&[8, 8]), ResizeHow::SetDims)
        .unwrap();
    let cells = shown(&full_tiling(&md, ino), &[8, 8]);
    assert_eq!(&cells[16..32], &[chunk.0; 16]);
    assert_eq!(&cells[32..], &[0; 32]);
}

#[test]
fn writes_grow_by_full_rows() {
    let (_service, md) = ready();
    let ino = file(&md, "rows");
    let change = crate::api::SpecChange {
        dtype: Some("f4".parse().unwrap()),
        dims: Some(Coords::from_slice(&[0, 4])),
        max_dims: Some(slabfs_model::parse_max_dims("unlimited,4").unwrap()),
        ..Default::default()
    };
    md.declare(ino, change, None).unwrap();
    let mut commit = commit_of(&md, ino);
    commit.size_at_least = 17;
    let reply = md.call(commit).unwrap();
    assert_eq!(reply.info.dims.as_slice(), [2, 4]);
    assert_eq!(reply.attr.size, 32);
}

#[test]
fn readers_get_the_changes() {
    let (_service, md) = ready();
    let ino = array(&md, "a", &[8, 8]);
    put(&md, ino, &[0, 0], &[2, 8]).unwrap();
    let mut tiling = full_tiling(&md, ino);
    let known = md.tiling(ino, Version(0)).unwrap().version();
    assert_eq!(
        md.tiling(ino, known).unwrap(),
        TilingReply::Unchanged { version: known }
    );
    put(&md, ino, &[0, 0], &[2, 8]).unwrap();
    put(&md, ino, &[4, 0], &[2, 8]).unwrap();
    put(&md, ino, &[4, 0], &[2, 8]).unwrap();
    let reply = md.tiling(ino, known).unwrap();
    let TilingReply::Changes { added, dropped, .. } = &reply else {
        panic!("{reply:?}")
    };
    assert_eq!(
        added.iter().map(|record| record.order).collect::<Vec<_>>(),
        [1, 3]
    );
    assert_eq!(dropped, &[0]);
    let known = reply.version();
    reply.apply(&mut tiling).unwrap();
    assert_eq!(
        shown(&tiling, &[8, 8]),
        shown(&full_tiling(&md, ino), &[8, 8])
    );
    // A clip cannot be sent as a change, so the entire tiling is sent again.
    md.resize(ino, Coords::from_slice(&[5, 8]), ResizeHow::SetDims)
        .unwrap();
    assert!(matches!(
        md.tiling(ino, known).unwrap(),
        TilingReply::All { .. }
    ));
}

#[test]
fn long_tilings_come_in_pages() {
    let (_service, md) = ready();
    let ino = array(&md, "a", &[1 << 20, 1]);
    let count = 60_000u32;
    let lease = md.call(op::LeaseChunks { count }).unwrap();
    let mut commit = commit_of(&md, ino);
    commit.records = (0..u64::from(count))
        .map(|i| (slab(&[i, 0], &[1, 1]), stored(&lease, i)))
        .collect();
    let reply = md.call(commit).unwrap();
    assert_eq!(full_tiling(&md, ino).len(), count as usize);
    assert_eq!(md.tiling(ino, Version(0)).unwrap().version(), reply.version);
}

#[test]
fn holes_hide_data_and_are_stored_only_if_needed() {
    let (_service, md) = ready();
    let ino = array(&md, "a", &[8, 8]);
    let punch = |offset: &[u64], shape: &[u64]| {
        let mut commit = commit_of(&md, ino);
        commit.records = vec![(slab(offset, shape), Stored::Fill)];
        commit.wrote = false;
        md.call(commit).unwrap()
    };
    assert_eq!(punch(&[0, 0], &[8, 8]).dropped, [0]);
    put(&md, ino, &[0, 0], &[4, 8]).unwrap();
    punch(&[1, 0], &[1, 8]);
    let cells = shown(&full_tiling(&md, ino), &[8, 8]);
    assert!(cells[..8].iter().all(|&c| c != 0) && cells[8..16].iter().all(|&c| c == 0));
    let reply = punch(&[0, 0], &[8, 8]);
    assert_eq!(reply.dropped, [1, 2, 3]);
    assert_eq!(reply.attr.stored, 0);
    assert!(full_tiling(&md, ino).is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Write([u64; 4]),
    Lattice([u64; 4], u64),
    Punch([u64; 4]),
    Resize([u64; 2]),
    Clear,
    Restart,
}

const DIMS: [u64; 2] = [6, 7];

fn corner() -> impl Strategy<Value = [u64; 4]> {
    (0..DIMS[0], 0..DIMS[1], 1..=DIMS[0], 1..=DIMS[1])
        .prop_map(|(y, x, h, w)| [y, x, h.min(DIMS[0] - y), w.min(DIMS[1] - x)])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => corner().prop_map(Step::Write),
        2 => (corner(), 2..4u64).prop_map(|(corner, step)| Step::Lattice(corner, step)),
        2 => corner().prop_map(Step::Punch),
        2 => (0..=DIMS[0], 0..=DIMS[1]).prop_map(|(y, x)| Step::Resize([y, x])),
        1 => Just(Step::Clear),
        1 => Just(Step::Restart),
    ]
}

fn within(slab: &Hyperslab, y: u64, x: u64) -> bool {
    let has = |axis: usize, at: u64| !slab.index_range(axis, at, at + 1).is_empty();
    has(0, y) && has(1, x)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tilings_show_what_was_written_last(steps in prop::collection::vec(step(), 1..25)) {
        let dir = tempfile::tempdir().unwrap();
        let mut service = service_in(dir.path());
        beat(&service, vec![]);
        let mut md = attach(&service);
        let ino = array(&md, "a", &DIMS);
        let mut cells: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let mut dims = DIMS;
        let mut followed = full_tiling(&md, ino);
        let mut known = md.tiling(ino, Version(0)).unwrap().version();
        for step in steps {
            let written = match &step {
                Step::Write([y, x, h, w]) => Some((slab(&[*y, *x], &[*h, *w]), true)),
                Step::Punch([y, x, h, w]) => Some((slab(&[*y, *x], &[*h, *w]), false)),
                Step::Lattice([y, x, h, w], every) => {
                    let mut lattice = slab(&[*y, *x], &[*h, *w]);
                    lattice.axes[1] = slabfs_model::Axis::every(*x, *every, w.div_ceil(*every));
                    Some((lattice, true))
                }
                Step::Resize(new) => {
                    md.resize(ino, Coords::from_slice(new), ResizeHow::SetDims).unwrap();
                    dims = *new;
                    cells.retain(|(y, x), _| *y < dims[0] && *x < dims[1]);
                    None
                }
                Step::Clear => {
                    md.call(op::Clear { ino }).unwrap();
                    cells.clear();
                    None
                }
                Step::Restart => {
                    service.close().unwrap();
                    drop(service);
                    service = service_in(dir.path());
                    beat(&service, vec![]);
                    md = attach(&service);
                    None
                }
            };
            if let Some((slab, data)) = written {
                let lease = md.call(op::LeaseChunks { count: 1 }).unwrap();
                let mut commit = commit_of(&md, ino);
                let value = if data { stored(&lease, 0) } else { Stored::Fill };
                commit.records = vec![(slab.clone(), value)];
                md.call(commit).unwrap();
                for y in 0..dims[0] {
                    for x in 0..dims[1] {
                        if within(&slab, y, x) {
                            cells.insert((y, x), if data { lease.first.0 } else { 0 });
                        }
                    }
                }
            }
            let expected: Vec<u64> = (0..DIMS[0])
                .flat_map(|y| (0..DIMS[1]).map(move |x| (y, x)))
                .map(|at| cells.get(&at).copied().unwrap_or(0))
                .collect();
            let news = md.tiling(ino, known).unwrap();
            known = news.version();
            news.apply(&mut followed).unwrap();
            prop_assert_eq!(&shown(&followed, &DIMS), &expected);
            prop_assert_eq!(&shown(&full_tiling(&md, ino), &DIMS), &expected);
        }
    }
}

#[test]
fn a_hole_across_a_lattice_of_many_axes_costs_nothing() {
    let (_service, md) = ready();
    let ino = array(&md, "a", &[5; 20]);
    let lattice = |start, stride, count, block| {
        let axis = Axis {
            start,
            stride,
            count,
            block,
        };
        Hyperslab {
            axes: std::iter::repeat_n(axis, 20).collect(),
        }
    };
    let lease = md.call(op::LeaseChunks { count: 1 }).unwrap();
    let commit = |slab: Hyperslab, value: Stored| {
        let mut commit = commit_of(&md, ino);
        commit.records = vec![(slab, value)];
        md.call(commit).unwrap()
    };
    commit(lattice(0, 3, 2, 2), stored(&lease, 0));
    // A hole over no data leaves no record.
    commit(lattice(2, 3, 1, 1), Stored::Fill);
    assert_eq!(full_tiling(&md, ino).len(), 1);
    // A plan of this tiling would have a million parts of twenty axes.
    commit(lattice(1, 3, 1, 3), Stored::Fill);
    assert_eq!(full_tiling(&md, ino).len(), 2);
}

/// As [`ready`], with a service that caches no tiling in memory.
fn forgetful() -> (Arc<Service>, Md) {
    let options = ServiceOptions {
        cached_records: 0,
        ..quiet()
    };
    let service = Arc::new(Service::over(Box::new(MemoryKv::new()), options).unwrap().0);
    beat(&service, vec![]);
    let md = attach(&service);
    (service, md)
}

/// Of a tiling with many records a reader gets the records around the cells it reads, in pages; of a small one it gets
/// all records.
#[test]
fn a_reader_gets_the_part_that_it_reads() {
    let (_service, md) = ready();
    parts_of_a_tiling(&md, false);
    let (_service, md) = forgetful();
    parts_of_a_tiling(&md, true);
}

/// A tiling that is read in parts after a start is in memory after a round of the background thread, with the same
/// contents.
#[test]
fn a_tiling_read_in_parts_is_loaded_completely_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    beat(&service, vec![]);
    let md = attach(&service);
    let ino = array(&md, "a", &[2000, 8]);
    for from in (0..2000).step_by(500) {
        let lease = md.call(op::LeaseChunks { count: 500 }).unwrap();
        let mut commit = commit_of(&md, ino);
        commit.records = (0..500)
            .map(|row| (slab(&[from + row, 0], &[1, 8]), stored(&lease, row)))
            .collect();
        md.call(commit).unwrap();
    }
    service.close().unwrap();
    drop((md, service));
    let service = service_in(dir.path());
    beat(&service, vec![]);
    let md = attach(&service);
    let wanted = || {
        let region = slabfs_model::Region::new(&[700, 0], &[1, 8]);
        md.tiling_part(ino, Version(0), Some(WantedPart { region, most: 8 }))
            .unwrap()
    };
    let in_memory = || {
        service
            .core()
            .tilings
            .with(ino, |loaded| loaded.tiling.is_some())
    };
    let parts = wanted();
    assert!(!in_memory(), "{parts:?}");
    service.settle_down().unwrap();
    assert!(in_memory());
    let TilingReply::Part { records, .. } = wanted() else {
        panic!("not a part");
    };
    assert!(!records.is_empty());
    put(&md, ino, &[700, 0], &[1, 8]).unwrap();
    assert_eq!(full_tiling(&md, ino).len(), 2000);
}

fn parts_of_a_tiling(md: &Md, forgets: bool) {
    let wanted = |row: u64, rows: u64, most: u32| {
        let region = slabfs_model::Region::new(&[row, 0], &[rows, 8]);
        Some(WantedPart { region, most })
    };
    let ino = array(md, "many", &[2000, 8]);
    for from in (0..2000).step_by(250) {
        let lease = md.call(op::LeaseChunks { count: 250 }).unwrap();
        let mut commit = commit_of(md, ino);
        commit.records = (0..250)
            .map(|row| (slab(&[from + row, 0], &[1, 8]), stored(&lease, row)))
            .collect();
        md.call(commit).unwrap();
    }
    // More commits than the change log holds.
    for row in 0..70 {
        put(md, ino, &[row, 0], &[1, 8]).unwrap();
    }
    let all = full_tiling(md, ino);
    let version = md.tiling(ino, Version(0)).unwrap().version();
    for (row, rows, most) in [(700, 1, 100), (0, 60, 8), (1990, 10, 0), (5000, 1, 64)] {
        let reply = md
            .tiling_part(ino, Version(0), wanted(row, rows, most))
            .unwrap();
        let TilingReply::Part {
            region, records, ..
        } = &reply
        else {
            panic!("{reply:?}");
        };
        assert!(region.offset[0] <= row && region.end(0) >= row + rows);
        let orders: Vec<u64> = records.iter().map(|record| record.order).collect();
        assert_eq!(orders, all.orders_within(region));
        assert!(orders.len() <= (rows as usize).max(most as usize));
    }
    assert_eq!(
        md.tiling_part(ino, version, wanted(0, 1, 1)).unwrap(),
        TilingReply::Unchanged { version }
    );
    if forgets {
        // The number of records is not known.
        let reply = md.tiling_part(ino, Version(0), wanted(0, 1500, 8)).unwrap();
        assert!(matches!(reply, TilingReply::Part { records, .. } if records.len() == 1500));
        return;
    }
    let most_of_it = md.tiling_part(ino, Version(0), wanted(0, 1500, 8)).unwrap();
    assert!(matches!(most_of_it, TilingReply::All { records, .. } if records.len() == 2000));
    let few = array(md, "few", &[8, 8]);
    put(md, few, &[0, 0], &[1, 8]).unwrap();
    put(md, few, &[7, 0], &[1, 8]).unwrap();
    let mut tiling = Tiling::new(2);
    md.tiling_part(few, Version(0), wanted(0, 1, 1))
        .unwrap()
        .apply(&mut tiling)
        .unwrap();
    assert_eq!(tiling.len(), 2);
}

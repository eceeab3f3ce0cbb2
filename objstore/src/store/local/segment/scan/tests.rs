//! Tests of scans of intact and damaged segments.

use std::io::IoSlice;

use slabfs_model::{ChunkId, Codec, Fill};

use super::*;
use crate::name::ChunkForm;
use crate::store::local::segment::Kind;

fn form() -> ChunkForm {
    ChunkForm {
        shape: [100].into_iter().collect(),
        elem: 1,
        codec: Codec::None,
        fill: Fill::zero(),
    }
}

fn segments(dir: &std::path::Path) -> (Segments, Vec<FoundRecord>) {
    let directory = Arc::new(Directory::open(dir).unwrap());
    Segments::open(
        directory,
        Arc::new(Shared::new((1, 0), true, false)),
        1,
        Known::default(),
        16,
    )
    .unwrap()
}

fn ids(found: &[FoundRecord]) -> Vec<u64> {
    found
        .iter()
        .map(|record| match record.name {
            ChunkName::Free(id) => id.0,
            ChunkName::Grid { .. } => panic!("a grid chunk"),
        })
        .collect()
}

fn write(dir: &std::path::Path, count: u64) -> Vec<Place> {
    let (segments, _) = segments(dir);
    let data = [7; 100];
    (0..count)
        .map(|id| {
            segments
                .append(
                    &ChunkName::Free(ChunkId(id)),
                    &form(),
                    Kind::Raw,
                    &[IoSlice::new(&data)],
                )
                .unwrap()
        })
        .collect()
}

fn flip(dir: &std::path::Path, at: u32) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(dir.join("segments/00000001.seg"))
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at.into()).unwrap();
    file.write_all_at(&[byte[0] ^ 0x20], at.into()).unwrap();
}

#[test]
fn live_records_are_found_and_dead_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let places = write(dir.path(), 5);
    let (all, found) = segments(dir.path());
    assert_eq!(ids(&found), [0, 1, 2, 3, 4]);
    assert!(found.iter().all(|record| record.sound));
    assert_eq!(
        found.iter().map(|record| record.place).collect::<Vec<_>>(),
        places
            .iter()
            .map(|p| Place { stamp: 0, ..*p })
            .collect::<Vec<_>>()
    );
    all.kill(&places[0]).unwrap();
    all.kill(&places[3]).unwrap();
    drop(all);
    assert_eq!(ids(&segments(dir.path()).1), [1, 2, 4]);
}

#[test]
fn a_damaged_head_or_foot_loses_nothing_and_damaged_data_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let places = write(dir.path(), 3);
    for at in [0, 8, 30, places[1].head - 1] {
        flip(dir.path(), places[1].offset + at);
        let (_, found) = segments(dir.path());
        assert_eq!(ids(&found), [0, 1, 2], "byte {at} of the head");
        assert!(found.iter().all(|record| record.sound));
        flip(dir.path(), places[1].offset + at);
    }
    flip(dir.path(), places[1].offset + places[1].head + 5);
    let (_, found) = segments(dir.path());
    assert_eq!(
        found.iter().map(|record| record.sound).collect::<Vec<_>>(),
        [true, false, true]
    );
    // Head and foot both damaged: only that record is lost.
    flip(dir.path(), places[1].offset + 9);
    flip(
        dir.path(),
        places[1].offset + record::foot_at(places[1].head, 100) + 9,
    );
    assert_eq!(ids(&segments(dir.path()).1), [0, 2]);
}

#[test]
fn a_record_cut_off_within_its_head_by_a_crash_is_removed_once() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let places = write(dir.path(), 100);
    let path = dir.path().join("segments/00000001.seg");
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let crosses = |place: &Place| 4096 - place.offset % 4096 < place.head;
    let cut = places.iter().position(crosses).unwrap();
    let place = places[cut];
    let all: Vec<u64> = (0..100).collect();
    // Its head is damaged and the rest is intact: the foot identifies it.
    flip(dir.path(), place.offset + 44);
    assert_eq!(ids(&segments(dir.path()).1), all);
    flip(dir.path(), place.offset + 44);
    // Only its first page was written.
    let page = place.offset.next_multiple_of(4096);
    let rest = vec![0; (place.offset + place.total() - page) as usize];
    file.write_all_at(&rest, page.into()).unwrap();
    let others: Vec<u64> = all.iter().copied().filter(|&id| id != cut as u64).collect();
    for _ in 0..2 {
        assert_eq!(ids(&segments(dir.path()).1), others);
        let mut left = vec![1; place.total() as usize];
        file.read_exact_at(&mut left, place.offset.into()).unwrap();
        assert!(
            left.iter().all(|&byte| byte == 0),
            "no later start meets it"
        );
    }
}

#[test]
fn a_segment_of_another_version_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), 1);
    flip(dir.path(), 8);
    let directory = Arc::new(Directory::open(dir.path()).unwrap());
    let outcome = Segments::open(
        directory,
        Arc::new(Shared::new((1, 0), true, false)),
        1,
        Known::default(),
        16,
    );
    assert!(
        outcome
            .unwrap_err()
            .to_string()
            .contains("use the slabfs that wrote it")
    );
}

//! Tests: reads through windows show the same as the entire tiling, and the least recently used tilings are dropped.

use proptest::prelude::*;
use slabfs_model::{ChunkId, Codec, Coords, Hyperslab, ObjectId, ServerId};

use super::*;

const ROWS: u64 = 64;
const COLUMNS: u64 = 8;

/// A model of the metadata service: a version, the records, and the changes of each commit.
struct Service {
    version: Version,
    tiling: Tiling<Stored>,
    next: u64,
    steps: Vec<(Vec<u64>, Vec<u64>)>,
    /// Number of commits it remembers.
    log: usize,
}

fn record(order: u64, region: &Region) -> Record<Stored> {
    Record {
        slab: Hyperslab::from_region(region),
        clip: None,
        order,
        value: Stored::Chunk(slabfs_mdserver::api::StoredChunk {
            chunk: ChunkId(order),
            server: ServerId(1),
            codec: Codec::None,
        }),
    }
}

impl Service {
    fn commit(&mut self, region: &Region) {
        let record = record(self.next, region);
        let hidden = self.tiling.shadowed_by(&record);
        for order in &hidden {
            self.tiling.remove(*order);
        }
        self.tiling.insert(record).unwrap();
        self.steps.push((vec![self.next], hidden));
        self.next += 1;
        self.version = Version(self.version.0 + 1);
    }

    fn reply(&self, known: Version, wanted: Option<WantedPart>) -> TilingReply {
        if known == self.version {
            return TilingReply::Unchanged {
                version: self.version,
            };
        }
        let first = self.steps.len().saturating_sub(self.log);
        let from = known.0.saturating_sub(1) as usize;
        if known != Version(0) && from >= first {
            let steps = &self.steps[from..];
            let dropped: Vec<u64> = steps.iter().flat_map(|step| step.1.clone()).collect();
            let added = steps.iter().flat_map(|step| &step.0);
            return TilingReply::Changes {
                version: self.version,
                added: added
                    .filter_map(|&order| self.tiling.get(order).cloned())
                    .collect(),
                dropped,
            };
        }
        let cells = Coords::from_slice(&[ROWS, COLUMNS]);
        match wanted {
            None => TilingReply::All {
                version: self.version,
                generation: 0,
                cells,
                records: self.tiling.iter().cloned().collect(),
                more: false,
            },
            Some(wanted) => {
                let region = self.tiling.window(&wanted.region, &cells, 4);
                let orders = self.tiling.orders_within(&region);
                TilingReply::Part {
                    version: self.version,
                    generation: 0,
                    cells,
                    region,
                    records: orders
                        .iter()
                        .filter_map(|&order| self.tiling.get(order).cloned())
                        .collect(),
                    more: false,
                }
            }
        }
    }
}

/// The chunk shown in each cell of a box.
fn shown(tiling: &Tiling<Stored>, region: &Region) -> Vec<Option<u64>> {
    let mut cells = Vec::new();
    for row in region.offset[0]..region.end(0) {
        for column in region.offset[1]..region.end(1) {
            let (mut parts, mut holes) = (Vec::new(), Vec::new());
            let cell = Region::new(&[row, column], &[1, 1]);
            tiling.plan(&Hyperslab::from_region(&cell), &mut parts, &mut holes);
            cells.push(parts.last().map(|part| part.record.order));
        }
    }
    cells
}

#[derive(Debug, Clone)]
enum Step {
    Commit(Region),
    Read(Region),
    ReadAll,
    Outdate,
}

fn region() -> impl Strategy<Value = Region> {
    (0..ROWS, 0..COLUMNS, 1..9u64, 1..=COLUMNS).prop_map(|(row, column, rows, columns)| {
        Region::new(
            &[row, column],
            &[rows.min(ROWS - row), columns.min(COLUMNS - column)],
        )
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => region().prop_map(Step::Commit),
        6 => region().prop_map(Step::Read),
        1 => Just(Step::ReadAll),
        1 => Just(Step::Outdate),
    ]
}

proptest! {
    #[test]
    fn windows_show_the_same_as_the_entire_tiling(
        first in prop::collection::vec(region(), 1..30),
        steps in prop::collection::vec(step(), 1..60),
        log in 0usize..6,
    ) {
        let mut service = Service {
            version: Version(1),
            tiling: Tiling::new(2),
            next: 0,
            steps: Vec::new(),
            log,
        };
        first.iter().for_each(|region| service.commit(region));
        let mut chunks = Chunks::default();
        for step in steps {
            let region = match step {
                Step::Commit(region) => {
                    service.commit(&region);
                    continue;
                }
                Step::Outdate => {
                    chunks.version = None;
                    continue;
                }
                Step::Read(region) => Some(region),
                Step::ReadAll => None,
            };
            let need = region.as_ref().map_or(Need::All, Need::Within);
            let least = service.version;
            let mut asked = 0;
            while chunks.version.is_none_or(|version| version < least) || !chunks.has(need) {
                let (known, wanted) = chunks.question(least, 2, need, 1000);
                chunks.answered(known, 2, service.reply(known, wanted)).unwrap();
                asked += 1;
                prop_assert!(asked <= 2, "a version, and a box");
            }
            let region = region.unwrap_or_else(|| Region::all(&[ROWS, COLUMNS]));
            prop_assert_eq!(shown(&chunks.tiling, &region), shown(&service.tiling, &region));
        }
    }
}

fn filled(records: u64) -> Chunks {
    let region = Region::new(&[0], &[1]);
    Chunks {
        version: Some(Version(1)),
        tiling: Tiling::bulk(
            1,
            (0..records).map(|order| record(order, &region)).collect(),
        )
        .unwrap(),
        ..Chunks::default()
    }
}

fn put(tilings: &Tilings, ino: u64, records: u64) -> Arc<Tiled> {
    let tiled = tilings.of(ObjectId(ino));
    *tiled.write() = filled(records);
    let weight = tiled.read().weight();
    tilings.weigh(ObjectId(ino), &tiled, weight);
    tiled
}

#[test]
fn the_least_recently_used_tiling_is_dropped() {
    let each = filled(10).weight() as u64;
    let tilings = Tilings::new(each * 3);
    let all: Vec<_> = (1..=3).map(|ino| put(&tilings, ino, 10)).collect();
    assert_eq!(tilings.gauges(), (3, each as usize * 3));
    tilings.touch(&all[0]);
    put(&tilings, 4, 10);
    assert_eq!(tilings.gauges(), (3, each as usize * 3));
    assert!(all[1].read().version.is_none() && all[1].read().tiling.is_empty());
    assert!(all[0].read().version.is_some() && all[2].read().version.is_some());
    // Closed and opened again.
    assert!(Arc::ptr_eq(&all[2], &tilings.of(ObjectId(3))));
    // A tiling larger than the limit is not cached, and one whose lock is held is not cleared.
    let reading = all[0].read();
    put(&tilings, 5, 100);
    assert_eq!(tilings.gauges(), (0, 0));
    assert_eq!(reading.tiling.len(), 10);
    drop(reading);
    // The holder of the lock weighs it again.
    let weight = all[0].read().weight();
    tilings.weigh(ObjectId(1), &all[0], weight);
    assert_eq!(tilings.gauges(), (1, each as usize));
    let epoch = tilings.epoch();
    tilings.clear();
    assert_eq!((tilings.gauges(), tilings.epoch() - epoch), ((0, 0), 1));
}

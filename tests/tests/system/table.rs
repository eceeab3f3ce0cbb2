//! The table of the HDF5 note on variable-size chunks (`003_670dc06f6b0520ec.txt`), from real counters.

use std::path::Path;

use serde_json::Value;
use slabfs_tests::array::{Array, Select, same};
use slabfs_tests::tool::{create, info, layout, program, stats};
use slabfs_tests::{Cluster, Up, file, inputs, needs_mount, slabfs};

/// The document's second set of selections.
const SELECTIONS: [[(u64, u64); 2]; 4] = [
    [(0, 10), (0, 9)],
    [(0, 7), (9, 16)],
    [(10, 16), (0, 9)],
    [(7, 16), (9, 16)],
];
/// Bytes in each.
const SELECTED: [u64; 4] = [360, 196, 216, 252];

fn check(runs: &Value) {
    let runs = runs.as_array().expect("runs");
    assert_eq!(runs.len(), 4);
    for run in runs {
        let column = |name: &str| -> Vec<u64> {
            let rows = run["rows"].as_array().expect("rows");
            rows.iter()
                .map(|row| row[name].as_u64().expect(name))
                .collect()
        };
        assert_eq!(column("bytes_selected"), SELECTED, "{run}");
        // slabfs sends the selected bytes, whatever the chunks are.
        assert_eq!(column("bytes_moved"), SELECTED, "{run}");
        if run["layout"] == "aligned" {
            assert_eq!(column("operations"), [1, 1, 1, 1], "{run}");
            assert_eq!(column("bytes_touched"), SELECTED, "{run}");
        } else {
            assert_eq!(run["layout"], "grid:8,8");
            assert_eq!(column("operations"), [4, 1, 2, 2], "{run}");
            assert_eq!(column("bytes_touched"), [1024, 256, 512, 512], "{run}");
        }
    }
    let kinds: Vec<_> = runs
        .iter()
        .map(|run| (run["layout"].as_str(), run["way"].as_str()))
        .collect();
    for layout in ["aligned", "grid:8,8"] {
        for way in ["rows", "copy"] {
            assert!(kinds.contains(&(Some(layout), Some(way))), "{kinds:?}");
        }
    }
}

#[test]
fn demo_on_a_mount_of_its_own() {
    needs_mount!();
    let text = slabfs(["demo", "table"]).ok();
    for word in [
        "35.16 %", "76.56 %", "42.19 %", "49.22 %", "100 %", "1024", "2304",
    ] {
        assert!(text.text().contains(word), "{word} in {}", text.text());
    }
}

#[test]
fn demo_on_a_given_mount() {
    needs_mount!();
    let up = Up::with(&["--servers", "3"]);
    let mount = up.mnt().display().to_string();
    check(
        &slabfs(["demo", "table", "--json", "--mount", &mount])
            .ok()
            .json(),
    );
    assert_eq!(
        std::fs::read_dir(up.mnt()).expect("the mount").count(),
        0,
        "it cleans up"
    );
}

#[test]
fn demo_on_separate_processes() {
    needs_mount!();
    let cluster = Cluster::start(2, 1);
    let mount = cluster.mnt(0).display().to_string();
    check(
        &slabfs(["demo", "table", "--json", "--mount", &mount])
            .ok()
            .json(),
    );
}

/// Four processes of another program, at the same time: one chunk each, of their selections' shapes.
#[test]
fn four_processes_at_once_leave_four_chunks() {
    needs_mount!();
    let up = Up::start();
    for way in ["rows", "selection"] {
        let object = up.at(way);
        create(&object, "16,16", "f4", &[]);
        let mut wanted = Array::new(&[16, 16], 4, &[]);
        wanted.bytes = (0..1024_u32).map(|i| (i * 7 + 1) as u8).collect();
        let source = up.area().write(&format!("{way}.raw"), &wanted.bytes);
        let before = stats(up.mnt());
        write_by_four(
            &object,
            &source,
            "16,16",
            4,
            &SELECTIONS.map(|bounds| (Select::boxed(&bounds), way)),
        );
        let after = stats(up.mnt());
        let grew = |key: &str| {
            after["write"][key].as_u64().unwrap() - before["write"][key].as_u64().unwrap()
        };
        assert_eq!(grew("server_ops"), 4, "{way}");
        assert_eq!(grew("bytes_selected"), 1024, "{way}");
        assert_eq!(grew("bytes_sent"), 1024, "{way}");
        assert_eq!(grew("bytes_touched"), 1024, "{way}");
        assert_eq!(info(&object)["chunks"], 4, "{way}");
        let chunks = layout(&object)["chunks"]
            .as_array()
            .expect("chunks")
            .clone();
        let boxes =
            |axis: &str| -> Vec<Value> { chunks.iter().map(|chunk| chunk[axis].clone()).collect() };
        for [(top, bottom), (left, right)] in SELECTIONS {
            // The last axis is reported in bytes.
            let offset = serde_json::json!([top, left * 4]);
            let shape = serde_json::json!([bottom - top, (right - left) * 4]);
            let at = boxes("offset")
                .iter()
                .position(|o| *o == offset)
                .unwrap_or_else(|| panic!("{offset} in {chunks:?}"));
            assert_eq!(boxes("shape")[at], shape, "{chunks:?}");
        }
        same(way, &file::read(&object), &wanted.bytes);
    }
}

/// Writes selections of an array from a raw file by one Python process each, all at the same time.
pub(crate) fn write_by_four(
    object: &Path,
    source: &Path,
    dims: &str,
    elem: usize,
    parts: &[(Select, &str)],
) {
    let script = inputs::script("write_part.py");
    std::thread::scope(|scope| {
        for (select, way) in parts {
            let script = &script;
            scope.spawn(move || {
                let bounds: Vec<String> = select
                    .0
                    .iter()
                    .map(|(from, to, _)| format!("{from}:{to}"))
                    .collect();
                program(
                    inputs::PYTHON,
                    [
                        script.as_os_str(),
                        object.as_os_str(),
                        source.as_os_str(),
                        dims.as_ref(),
                        elem.to_string().as_ref(),
                        bounds.join(",").as_ref(),
                        way.as_ref(),
                    ],
                )
                .ok();
            });
        }
    });
}

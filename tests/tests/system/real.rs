//! Real ocean and atmosphere grids: variables of rank 2, 3 and 4 from the NetCDF files of the Debian package
//! `ferret-datasets`, written by four processes, compared byte by byte.

use std::path::Path;

use slabfs_tests::array::{Array, Select, same};
use slabfs_tests::tool::{create, info, program};
use slabfs_tests::{Area, Cluster, Random, Up, file, inputs, needs_mount};

use crate::table::write_by_four;

/// File, variable and rank.
const VARIABLES: [(&str, &str, usize); 3] = [
    ("etopo20.cdf", "ROSE", 2),
    ("coads_climatology.cdf", "SST", 3),
    ("ocean_atlas_subset.nc", "TEMP", 4),
];

struct Grid {
    name: String,
    dims: String,
    dtype: String,
    array: Array,
    raw: std::path::PathBuf,
}

fn extract(area: &Area, (file_name, variable, rank): (&str, &str, usize)) -> Grid {
    let source = Path::new(inputs::FERRET).join(file_name);
    assert!(
        source.exists(),
        "{} is missing; run tools/setup --tests",
        source.display()
    );
    let raw = area.at(format!("{variable}{rank}.raw"));
    let script = inputs::script("extract.py");
    let output = program(
        inputs::PYTHON,
        [
            script.as_os_str(),
            source.as_os_str(),
            variable.as_ref(),
            raw.as_os_str(),
        ],
    );
    let output = output.ok().json();
    let dims: Vec<u64> = output["dims"]
        .as_array()
        .expect("dims")
        .iter()
        .map(|n| n.as_u64().expect("a dim"))
        .collect();
    assert_eq!(dims.len(), rank);
    let mut array = Array::new(&dims, 4, &[]);
    array.bytes = file::read(&raw);
    assert_eq!(array.bytes.len() as u64, dims.iter().product::<u64>() * 4);
    let text: Vec<String> = dims.iter().map(u64::to_string).collect();
    let dtype = output["dtype"].as_str().expect("a dtype").to_owned();
    Grid {
        name: format!("{variable}{rank}"),
        dims: text.join(","),
        dtype,
        array,
        raw,
    }
}

/// Four boxes that tile the array like the document's: the middle axes cut differently on each side.
fn quarters(dims: &[u64]) -> [Select; 4] {
    let rank = dims.len();
    let (a, b) = (rank - 2, rank - 1);
    let cut_a = [dims[a] * 5 / 8 + 1, dims[a] * 7 / 16];
    let cut_b = dims[b] * 9 / 16 + 1;
    let part = |rows: (u64, u64), columns: (u64, u64)| {
        let mut bounds: Vec<(u64, u64)> = dims.iter().map(|&dim| (0, dim)).collect();
        (bounds[a], bounds[b]) = (rows, columns);
        Select::boxed(&bounds)
    };
    [
        part((0, cut_a[0]), (0, cut_b)),
        part((0, cut_a[1]), (cut_b, dims[b])),
        part((cut_a[0], dims[a]), (0, cut_b)),
        part((cut_a[1], dims[a]), (cut_b, dims[b])),
    ]
}

fn write(grid: &Grid, object: &Path, more: &[&str]) {
    create(object, &grid.dims, &grid.dtype, more);
    let ways = ["rows", "selection", "selection", "rows"];
    let parts: Vec<(Select, &str)> = quarters(&grid.array.dims).into_iter().zip(ways).collect();
    write_by_four(object, &grid.raw, &grid.dims, 4, &parts);
}

fn compare(grid: &Grid, object: &Path, seed: u64) {
    same(&grid.name, &file::read(object), &grid.array.bytes);
    let mut random = Random::new(seed);
    for _ in 0..25 {
        let select = Select::random(&grid.array.dims, &mut random);
        let found = file::read(&select.of(object));
        same(
            &format!("{}{}", grid.name, select.text()),
            &found,
            &grid.array.get(&select),
        );
    }
}

#[test]
fn in_one_process_and_after_a_restart() {
    needs_mount!();
    let mut up = Up::with(&["--servers", "2"]);
    let grids = VARIABLES.map(|variable| extract(up.area(), variable));
    for grid in &grids {
        write(grid, &up.at(&grid.name), &[]);
        write(
            grid,
            &up.at(format!("{}z", grid.name)),
            &["--codec", "shuffle+zstd:3"],
        );
        let chunk: Vec<&str> = ["3", "5", "17", "40"][4 - grid.array.dims.len()..].to_vec();
        write(
            grid,
            &up.at(format!("{}g", grid.name)),
            &["--layout", &format!("grid:{}", chunk.join(","))],
        );
        if grid.array.dims.len() == 2 {
            assert_eq!(info(&up.at(&grid.name))["chunks"], 4);
        }
    }
    for (round, restart) in [(1, true), (2, false)] {
        for grid in &grids {
            for kind in ["", "z", "g"] {
                compare(grid, &up.at(format!("{}{kind}", grid.name)), round);
            }
        }
        if restart {
            up.restart();
        }
    }
}

#[test]
fn over_sockets_and_from_a_second_mount() {
    needs_mount!();
    let mut cluster = Cluster::start(3, 1);
    let grids = VARIABLES.map(|variable| extract(cluster.area(), variable));
    for grid in &grids {
        write(grid, &cluster.at(0, &grid.name), &[]);
        compare(grid, &cluster.at(0, &grid.name), 3);
    }
    cluster.add_mount();
    for grid in &grids {
        compare(grid, &cluster.at(1, &grid.name), 4);
    }
    cluster.restart();
    for grid in &grids {
        compare(grid, &cluster.at(1, &grid.name), 5);
    }
}

//! Programs of MPI-IO with their ranks on two mounts, two on each: every rank opens the same objects by the
//! paths of its own mount. The subjects are those of `mpi`, and so are the files.
//!
//! MPI-IO promises more than sync-barrier-sync in atomic mode and with shared file pointers, and ROMIO's data
//! sieving and shared pointers work under locks on bytes that other ranks have just written: these need a read
//! to return the last completed write on any mount.

use serde_json::json;
use slabfs_tests::mpi::{Mpi, Program};
use slabfs_tests::tool::{create, info, layout, stats};
use slabfs_tests::{Cluster, file, needs_mount};

use crate::mpi::{BOXES, QUARTERS};

/// Two mounts for a program, and the program.
#[track_caller]
fn mounted(mpi: Mpi, name: &str) -> (Cluster, Program) {
    let mut cluster = Cluster::new(2, &[], false);
    let program = mpi.program(cluster.area(), name);
    cluster.start_all(2);
    (cluster, program)
}

/// Runs a program on a byte file and on arrays of `rows` × `columns`; then both mounts show the same, also
/// after a restart.
#[track_caller]
fn on_all_kinds(mpi: Mpi, name: &str, words: &[&str], [rows, columns]: [u64; 2]) {
    let (mut cluster, program) = mounted(mpi, name);
    let dims = format!("{rows},{columns}");
    for (name, layout) in [("aligned", "aligned"), ("grid", "grid:13,17")] {
        create(&cluster.at(0, name), &dims, "u4", &["--layout", layout]);
    }
    let kinds = ["bytes", "aligned", "grid"];
    program
        .run_each([0, 1].map(|mount| {
            let paths = kinds.map(|kind| cluster.at(mount, kind).display().to_string());
            let words = words.iter().map(|&word| word.to_owned());
            words.chain(paths).collect::<Vec<_>>()
        }))
        .ok();
    let before = kinds.map(|kind| file::read(&cluster.at(0, kind)));
    for (kind, before) in kinds.iter().zip(&before) {
        let other = file::read(&cluster.at(1, kind));
        assert!(&other == before, "{kind} on the other mount");
    }
    cluster.restart();
    for (kind, before) in kinds.iter().zip(&before) {
        let after = file::read(&cluster.at(1, kind));
        assert!(&after == before, "{kind} after a restart");
    }
}

/// Four ranks on two mounts write an array of 16 × 16: four operations, nothing sent or touched that was not
/// requested, and chunks of the written shapes.
#[track_caller]
fn four_operations(mpi: Mpi, how: &str, boxes: &[[(u64, u64); 2]; 4]) {
    let (cluster, program) = mounted(mpi, "table");
    create(&cluster.at(0, "a"), "16,16", "u4", &["--layout", "aligned"]);
    let counted = |key: &str| -> u64 {
        [0, 1]
            .map(|mount| {
                stats(&cluster.mnt(mount))["write"][key]
                    .as_u64()
                    .expect("a counter")
            })
            .iter()
            .sum()
    };
    let keys = [
        "server_ops",
        "bytes_selected",
        "bytes_sent",
        "bytes_touched",
    ];
    let before = keys.map(counted);
    let words = |mount: usize| {
        let path = cluster.at(mount, "a").display().to_string();
        vec![how.to_owned(), "1".to_owned(), path]
    };
    program.run_each([words(0), words(1)]).ok();
    let after = keys.map(counted);
    let shown = layout(&cluster.at(1, "a"));
    let grew: Vec<u64> = after
        .iter()
        .zip(before)
        .map(|(after, before)| after - before)
        .collect();
    assert_eq!(grew, [4, 1024, 1024, 1024], "{keys:?}: {shown}");
    assert_eq!(info(&cluster.at(1, "a"))["chunks"], 4, "{shown}");
    let chunks = shown["chunks"].as_array().expect("chunks");
    for [(top, bottom), (left, right)] in boxes {
        // The last axis is reported in bytes.
        let offset = json!([top, left * 4]);
        let shape = json!([bottom - top, (right - left) * 4]);
        let found = chunks
            .iter()
            .any(|chunk| chunk["offset"] == offset && chunk["shape"] == shape);
        assert!(found, "no chunk at {offset} of {shape}: {shown}");
    }
}

/// The tests that every MPI must succeed in.
macro_rules! every_mpi {
    ($($(#[$attr:meta])* $name:ident = $mpi:expr;)*) => {$(
        mod $name {
            use super::*;

            $(#[$attr])*
            #[test]
            fn uneven_boxes_through_subarray_views() {
                needs_mount!();
                on_all_kinds($mpi, "subarray", &["61", "83"], [61, 83]);
            }

            $(#[$attr])*
            #[test]
            fn blocks_and_cycles_through_darray_views() {
                needs_mount!();
                on_all_kinds($mpi, "darray", &["31", "42"], [31, 42]);
            }

            $(#[$attr])*
            #[test]
            fn strided_vectors_with_and_without_data_sieving() {
                needs_mount!();
                on_all_kinds($mpi, "vector", &["2160"], [36, 60]);
            }

            $(#[$attr])*
            #[test]
            fn contiguous_pieces_at_explicit_offsets() {
                needs_mount!();
                on_all_kinds($mpi, "explicit", &["200000"], [200, 1000]);
            }

            $(#[$attr])*
            #[test]
            fn overlapping_writes_in_atomic_mode_are_not_mixed() {
                needs_mount!();
                on_all_kinds($mpi, "atomic", &["contiguous", "64", "96"], [64, 96]);
            }

            $(#[$attr])*
            #[test]
            fn shared_pointers_and_ordered_mode() {
                needs_mount!();
                on_all_kinds($mpi, "shared", &["1000"], [50, 20]);
            }

            $(#[$attr])*
            #[test]
            fn nonblocking_reads_and_writes() {
                needs_mount!();
                let calls = if $mpi == Mpi::OpenRomio { "independent" } else { "all" };
                on_all_kinds($mpi, "nonblocking", &[calls, "61", "83"], [61, 83]);
            }

            $(#[$attr])*
            #[test]
            fn sizes_appending_and_deleting() {
                needs_mount!();
                let (cluster, program) = mounted($mpi, "sizes");
                let words = |words: &[&str], name: &str| {
                    [0, 1].map(|mount| {
                        let path = cluster.at(mount, name).display().to_string();
                        let words = words.iter().map(|&word| word.to_owned());
                        words.chain([path]).collect::<Vec<_>>()
                    })
                };
                program.run_each(words(&["bytes"], "b")).ok();
                for layout in ["aligned", "grid:8,8"] {
                    create(&cluster.at(0, "a"), "50,100", "u4", &["--layout", layout]);
                    program.run_each(words(&["array", "5000"], "a")).ok();
                }
                for mount in [0, 1] {
                    let left = std::fs::read_dir(cluster.mnt(mount)).expect("the mount");
                    assert_eq!(left.count(), 0);
                }
            }

            $(#[$attr])*
            #[test]
            fn four_ranks_leave_one_chunk_each_of_the_shape_of_their_selection() {
                needs_mount!();
                four_operations($mpi, "independent", &BOXES);
            }

            $(#[$attr])*
            #[test]
            fn four_aggregators_leave_one_chunk_each() {
                needs_mount!();
                four_operations($mpi, "collective", &QUARTERS);
            }
        }
    )*};
}

every_mpi! {
    mpich = Mpi::Mpich;
    ompio = Mpi::Ompio;
    #[ignore = "the same ROMIO as that of MPICH, of another version: tools/soak runs it"]
    open_mpi_romio = Mpi::OpenRomio;
}

/// Only ROMIO makes more than single calls atomic, with locks.
#[test]
fn atomic_mode_of_romio_holds_for_strided_writes_and_for_reads() {
    needs_mount!();
    for mpi in [Mpi::Mpich, Mpi::OpenRomio] {
        for what in ["strided", "concurrent"] {
            on_all_kinds(mpi, "atomic", &[what, "64", "96"], [64, 96]);
        }
    }
}

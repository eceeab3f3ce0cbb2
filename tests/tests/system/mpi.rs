//! Programs of MPI-IO on one mount, with every MPI that Debian has: each subject on a plain byte file, on a
//! declared array whose chunks follow its writers, and on one with a chunk grid.
//!
//! The programs (`tests/mpi`) compare all bytes while they run; here the file is compared again after a
//! restart, and for the table of the note on variable-size chunks the counters are compared.

use serde_json::{Value, json};
use slabfs_tests::mpi::{Mpi, Program};
use slabfs_tests::tool::{create, info, layout, stats};
use slabfs_tests::{Area, Up, file, needs_mount};

/// The four uneven boxes of the note, as the bounds of two axes.
pub(crate) const BOXES: [[(u64, u64); 2]; 4] = [
    [(0, 10), (0, 9)],
    [(0, 7), (9, 16)],
    [(10, 16), (0, 9)],
    [(7, 16), (9, 16)],
];
/// Four aggregators, each with a quarter of the array's bytes.
pub(crate) const QUARTERS: [[(u64, u64); 2]; 4] = [
    [(0, 4), (0, 16)],
    [(4, 8), (0, 16)],
    [(8, 12), (0, 16)],
    [(12, 16), (0, 16)],
];

/// A mount for a program, and the program.
#[track_caller]
fn mounted(mpi: Mpi, name: &str) -> (Up, Program) {
    let area = Area::new();
    let program = mpi.program(&area, name);
    let mut up = Up::new(area, &["--servers", "2"]);
    up.start_again();
    (up, program)
}

/// Runs a program on a byte file and on arrays of `rows` × `columns`, and checks that all are the same, also
/// after a restart.
#[track_caller]
fn on_all_kinds(mpi: Mpi, name: &str, words: &[&str], [rows, columns]: [u64; 2]) {
    let (mut up, program) = mounted(mpi, name);
    let dims = format!("{rows},{columns}");
    create(&up.at("aligned"), &dims, "u4", &["--layout", "aligned"]);
    create(&up.at("grid"), &dims, "u4", &["--layout", "grid:13,17"]);
    let kinds = ["bytes", "aligned", "grid"];
    let mut args: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    args.extend(kinds.map(|kind| up.at(kind).display().to_string()));
    program.run(args).ok();
    let before = kinds.map(|kind| file::read(&up.at(kind)));
    up.restart();
    for (kind, before) in kinds.iter().zip(before) {
        assert!(file::read(&up.at(kind)) == before, "{kind} after a restart");
    }
}

/// Four ranks write `steps` arrays of 16 × 16, one after the other: with as few operations as possible, and
/// chunks of the written shapes.
#[track_caller]
fn four_operations(mpi: Mpi, how: &str, steps: u64, boxes: &[[(u64, u64); 2]; 4]) {
    let (up, program) = mounted(mpi, "table");
    let object = up.at("a");
    if steps == 1 {
        create(&object, "16,16", "u4", &["--layout", "aligned"]);
    } else {
        let grows = ["--max-dims", "unlimited,16,16", "--layout", "aligned"];
        create(&object, "0,16,16", "u4", &grows);
    }
    let before = stats(up.mnt());
    let path = object.display().to_string();
    program.run([how, &steps.to_string(), &path]).ok();
    let after = stats(up.mnt());
    let grew = |key: &str| {
        let count = |stats: &Value| stats["write"][key].as_u64().expect("a counter");
        count(&after) - count(&before)
    };
    let shown = layout(&object);
    assert_eq!(grew("server_ops"), 4, "{shown}");
    for counter in ["bytes_selected", "bytes_sent", "bytes_touched"] {
        assert_eq!(grew(counter), 1024 * steps, "{counter}");
    }
    assert_eq!(info(&object)["chunks"], 4, "{shown}");
    let chunks = shown["chunks"].as_array().expect("chunks");
    for [(top, bottom), (left, right)] in boxes {
        // The last axis is reported in bytes.
        let (mut offset, mut shape) =
            (vec![*top, left * 4], vec![bottom - top, (right - left) * 4]);
        if steps > 1 {
            offset.insert(0, 0);
            shape.insert(0, steps);
        }
        let (offset, shape) = (json!(offset), json!(shape));
        assert!(
            chunks
                .iter()
                .any(|chunk| chunk["offset"] == offset && chunk["shape"] == shape),
            "no chunk at {offset} of {shape}: {shown}"
        );
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
                let (up, program) = mounted($mpi, "sizes");
                program.run(["bytes", &up.at("b").display().to_string()]).ok();
                for layout in ["aligned", "grid:8,8"] {
                    create(&up.at("a"), "50,100", "u4", &["--layout", layout]);
                    program.run(["array", "5000", &up.at("a").display().to_string()]).ok();
                }
                assert_eq!(std::fs::read_dir(up.mnt()).expect("the mount").count(), 0);
            }

            $(#[$attr])*
            #[test]
            fn four_ranks_leave_one_chunk_each_of_the_shape_of_their_selection() {
                needs_mount!();
                four_operations($mpi, "independent", 1, &BOXES);
            }

            $(#[$attr])*
            #[test]
            fn four_aggregators_leave_one_chunk_each() {
                needs_mount!();
                four_operations($mpi, "collective", 1, &QUARTERS);
            }

            $(#[$attr])*
            #[test]
            fn time_steps_of_four_ranks_become_one_chunk_each() {
                needs_mount!();
                four_operations($mpi, "independent", 5, &BOXES);
                four_operations($mpi, "collective", 5, &QUARTERS);
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

/// OMPIO has several ways to write collectively, and chooses one by a heuristic.
#[test]
fn every_collective_component_of_ompio() {
    needs_mount!();
    let (up, mut program) = mounted(Mpi::Ompio, "subarray");
    for component in ["dynamic", "dynamic_gen2", "individual", "two_phase"] {
        let object = up.at(component);
        create(&object, "61,83", "u4", &[]);
        program = program.env("OMPI_MCA_fcoll", component);
        program
            .run(["61", "83", &object.display().to_string()])
            .ok();
    }
}

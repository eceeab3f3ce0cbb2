//! The test programs of ROMIO, MPICH, parallel HDF5 and PnetCDF: those that succeed in a directory of this
//! machine's own filesystem succeed on a mount, and with the ranks on two mounts.
//!
//! Here a selection of the quick ones; all of them: `tools/soak 1800 mpi_suites`, and some of them with
//! `SLABFS_SUITE_PROGRAMS=t_bigio,t_cache` in front.

use std::path::PathBuf;
use std::time::Duration;

use slabfs_tests::mpi::Mpi;
use slabfs_tests::mpi::suites::{LIMIT, Programs, Suite};
use slabfs_tests::{Cluster, needs_mount, needs_root};

/// How long a program that ends in a plain directory may take on a mount: HDF5's `t_bigio` makes Open MPI write
/// four million pieces of 16 bytes, each in a FUSE request.
const ON_MOUNT: Duration = LIMIT.saturating_mul(4);

/// Quick programs that together open, share, lock, grow and remove files.
const QUICK: [(Suite, Mpi, &[&str]); 5] = [
    (
        Suite::Romio,
        Mpi::Mpich,
        &[
            "atomicity",
            "excl",
            "misc",
            "noncontig_coll2",
            "shared_fp",
            "split_coll",
        ],
    ),
    (Suite::Romio, Mpi::Ompio, &["coll_test", "simple"]),
    (
        Suite::Mpich,
        Mpi::Mpich,
        &["i_coll_test", "rdwrord", "setviewcur"],
    ),
    (
        Suite::Hdf5,
        Mpi::Mpich,
        &["t_mpi", "t_pread", "t_pshutdown", "testphdf5"],
    ),
    (
        Suite::Pnetcdf,
        Mpi::OpenRomio,
        &["C_put_vara", "testcases_record", "testcases_varn_int"],
    ),
];

/// Runs programs first in a plain directory; those that succeed there then on `mounts` mounts.
#[track_caller]
fn compare(suite: Suite, mpi: Mpi, only: Option<&[&str]>, mounts: usize) {
    let mut cluster = Cluster::new(2, &[], false);
    let mut programs = Programs::new(suite, mpi, cluster.area());
    cluster.start_all(mounts);
    let names = match only {
        Some(names) => names.iter().map(|&name| name.to_owned()).collect(),
        None => wanted(programs.names()),
    };
    let (mut passed, mut left_out, mut wrong) = (0, Vec::new(), Vec::new());
    for name in &names {
        let plain = cluster.area().mkdir(&format!("plain-{name}"));
        let there = programs.run(name, std::slice::from_ref(&plain), LIMIT);
        std::fs::remove_dir_all(&plain).expect("what the program left");
        if let Err(said) = there {
            println!("fails everywhere: {said}");
            left_out.push(name.as_str());
            continue;
        }
        let places: Vec<PathBuf> = (0..mounts).map(|mount| cluster.at(mount, name)).collect();
        std::fs::create_dir(&places[0]).expect("a directory on the mount");
        match programs.run(name, &places, ON_MOUNT) {
            Ok(()) => passed += 1,
            Err(said) => wrong.push(said),
        }
        std::fs::remove_dir_all(&places[0]).expect("what the program left on the mount");
    }
    println!(
        "{suite:?}, {mpi:?}, {mounts} mounts: {passed} passed, not in a plain directory: {left_out:?}"
    );
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        names.len(),
        wrong.join("\n")
    );
    assert!(passed > 0, "nothing was compared");
    assert!(
        only.is_none() || left_out.is_empty(),
        "{left_out:?} have to succeed in a plain directory"
    );
}

/// The programs in `SLABFS_SUITE_PROGRAMS`, separated by commas, if that is set.
fn wanted(names: Vec<String>) -> Vec<String> {
    let Ok(listed) = std::env::var("SLABFS_SUITE_PROGRAMS") else {
        return names;
    };
    let listed: Vec<&str> = listed.split(',').map(str::trim).collect();
    let unknown = |name: &&&str| !names.iter().any(|one| one == *name);
    let unknown: Vec<_> = listed.iter().filter(unknown).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not among {names:?}");
    let is_listed = |name: &String| listed.contains(&name.as_str());
    names.into_iter().filter(is_listed).collect()
}

#[test]
fn quick_ones_on_one_mount() {
    needs_mount!();
    for (suite, mpi, names) in QUICK {
        // HDF5's take half of the time: they run on two mounts below, and `mpi_libraries` runs HDF5 on one.
        if !matches!(suite, Suite::Hdf5) {
            compare(suite, mpi, Some(names), 1);
        }
    }
}

#[test]
fn quick_ones_on_two_mounts() {
    needs_root!();
    for (suite, mpi, names) in QUICK {
        compare(suite, mpi, Some(names), 2);
    }
}

/// All programs of a suite with one MPI.
macro_rules! entire {
    ($($name:ident = $suite:expr, $mpi:expr;)*) => {$(
        mod $name {
            use super::*;

            #[test]
            #[ignore = "takes minutes: tools/soak runs it"]
            fn all_on_one_mount() {
                needs_mount!();
                compare($suite, $mpi, None, 1);
            }

            #[test]
            #[ignore = "takes minutes: tools/soak runs it"]
            fn all_on_two_mounts() {
                needs_root!();
                compare($suite, $mpi, None, 2);
            }
        }
    )*};
}

entire! {
    romio_mpich = Suite::Romio, Mpi::Mpich;
    romio_ompio = Suite::Romio, Mpi::Ompio;
    romio_open_mpi_romio = Suite::Romio, Mpi::OpenRomio;
    mpich_mpich = Suite::Mpich, Mpi::Mpich;
    mpich_ompio = Suite::Mpich, Mpi::Ompio;
    hdf5_mpich = Suite::Hdf5, Mpi::Mpich;
    hdf5_ompio = Suite::Hdf5, Mpi::Ompio;
    hdf5_open_mpi_romio = Suite::Hdf5, Mpi::OpenRomio;
    pnetcdf_ompio = Suite::Pnetcdf, Mpi::Ompio;
    pnetcdf_open_mpi_romio = Suite::Pnetcdf, Mpi::OpenRomio;
}

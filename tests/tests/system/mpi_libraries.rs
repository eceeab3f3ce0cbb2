//! Libraries over MPI-IO: parallel HDF5 and PnetCDF write and read files on the mount, with every MPI for which
//! Debian has them. The programs compare all bytes; here the services restart between writing and reading, and
//! the file is also read by programs without MPI.

use slabfs_tests::mpi::{Alone, Mpi, Program};
use slabfs_tests::tool::create;
use slabfs_tests::{Area, Cluster, Up, inputs, needs_mount};

const DIMS: [&str; 2] = ["61", "83"];

/// Objects that a library uses as a file: a byte object, and one whose chunks follow the writers.
#[track_caller]
fn objects(up: &Up) -> Vec<String> {
    let growing = ["--max-dims", "unlimited", "--layout", "aligned"];
    create(&up.at("aligned"), "0", "u1", &growing);
    ["bytes", "aligned"]
        .map(|name| up.at(name).display().to_string())
        .to_vec()
}

/// A program with its library. With OMPIO of Open MPI 4.1 and its default choice of collective writes HDF5
/// sometimes fails, on ext4 too; so the choice is set.
#[track_caller]
fn linked(mpi: Mpi, area: &Area, name: &str, library: &str) -> Program {
    mpi.linked(area, name, Some(library))
        .env("OMPI_MCA_fcoll", "dynamic")
}

#[track_caller]
fn run(program: &Program, what: &str, files: &[String]) {
    let words = [what, DIMS[0], DIMS[1]].map(str::to_owned);
    program.run(words.iter().chain(files)).ok();
}

/// Writes with four ranks, and reads after a restart.
#[track_caller]
fn on_one_mount(mpi: Mpi, name: &str, library: &str) {
    let area = Area::new();
    let program = linked(mpi, &area, name, library);
    let mut up = Up::new(area, &["--servers", "2"]);
    up.start_again();
    let files = objects(&up);
    run(&program, "write", &files);
    up.restart();
    run(&program, "read", &files);
    if name == "pnetcdf" {
        let script = inputs::script("read_nc.py").display().to_string();
        let words = [script, DIMS[0].to_owned(), DIMS[1].to_owned()];
        slabfs_tests::tool::program(inputs::PYTHON, words.iter().chain(&files)).ok();
    }
}

/// Two ranks on each of two mounts write; then the ranks read, each on the other mount.
#[track_caller]
fn on_two_mounts(mpi: Mpi, name: &str, library: &str) {
    let mut cluster = Cluster::new(2, &[], false);
    let program = linked(mpi, cluster.area(), name, library);
    cluster.start_all(2);
    let words = |what: &str, mount: usize| {
        let file = cluster.at(mount, "f").display().to_string();
        vec![
            what.to_owned(),
            DIMS[0].to_owned(),
            DIMS[1].to_owned(),
            file,
        ]
    };
    program
        .run_each([words("write", 0), words("write", 1)])
        .ok();
    program.run_each([words("read", 1), words("read", 0)]).ok();
}

/// The tests of each library with each MPI.
macro_rules! every_library {
    ($($(#[$attr:meta])* $name:ident = $mpi:expr, $program:literal, $library:literal;)*) => {$(
        mod $name {
            use super::*;

            $(#[$attr])*
            #[test]
            fn on_one_mount_and_after_a_restart() {
                needs_mount!();
                on_one_mount($mpi, $program, $library);
            }

            $(#[$attr])*
            #[test]
            fn on_two_mounts() {
                needs_mount!();
                super::on_two_mounts($mpi, $program, $library);
            }
        }
    )*};
}

every_library! {
    hdf5_mpich = Mpi::Mpich, "hdf5", "hdf5-mpich";
    hdf5_ompio = Mpi::Ompio, "hdf5", "hdf5-openmpi";
    #[ignore = "the same ROMIO as that of MPICH, of another version: tools/soak runs it"]
    hdf5_open_mpi_romio = Mpi::OpenRomio, "hdf5", "hdf5-openmpi";
    pnetcdf_ompio = Mpi::Ompio, "pnetcdf", "pnetcdf";
    #[ignore = "the same ROMIO as that of MPICH, of another version: tools/soak runs it"]
    pnetcdf_open_mpi_romio = Mpi::OpenRomio, "pnetcdf", "pnetcdf";
}

fn h5py(area: &Area, files: &[&std::path::Path]) {
    let script = inputs::script("parallel_h5.py");
    let lines: Vec<Vec<_>> = files
        .iter()
        .map(|file| vec![inputs::PYTHON.into(), script.clone().into(), file.into()])
        .collect();
    Mpi::Ompio.launcher(area).run(&lines).ok();
}

#[test]
fn h5py_on_one_mount() {
    needs_mount!();
    let _alone = Alone::wait();
    let up = Up::with(&["--servers", "2"]);
    h5py(up.area(), &[&up.at("f.h5")]);
}

#[test]
fn h5py_on_two_mounts() {
    needs_mount!();
    let _alone = Alone::wait();
    let cluster = Cluster::start(2, 2);
    h5py(
        cluster.area(),
        &[&cluster.at(0, "f.h5"), &cluster.at(1, "f.h5")],
    );
}

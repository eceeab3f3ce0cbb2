//! The command lines of `slabfs import` and `slabfs export`. `slabfs` includes this file for its help, and runs
//! `slabfs-formats` for the work.

use std::path::PathBuf;

/// Bring files of other formats into a slabfs mount
///
/// NetCDF of any kind, HDF5, .npy, .npz, and Zarr directories. Groups become directories,
/// variables arrays, attributes tags, and names of dimensions the tag `dim_names`. Types, fill
/// values, unlimited dimensions and compression stay, so that `slabfs export` gives back what came
/// in; what cannot be represented is refused by name, before anything is created. What is imported
/// appears when it is complete.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs import --dry-run sst.nc mnt/sst      # only says what would be created
  slabfs import sst.nc mnt/sst                # an array for each variable
  mkdir mnt/runs && slabfs import a.nc b.nc mnt/runs
      makes mnt/runs/a and mnt/runs/b
  slabfs import --append 'day-*.nc' mnt/sst   # more records of its variables

Next: `slabfs info --cdl mnt/sst` shows it, `slabfs find` searches its tags.")]
pub(crate) struct Import {
    /// Files, Zarr directories, or quoted patterns such as 'run-*.nc'
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// What to create on a mount: a container, or for .npy an array; or, if it is a directory, where
    /// one for each file is created
    pub(crate) dest: PathBuf,
    /// Append the records of the files to the arrays in DEST that have an unlimited first axis
    #[arg(long)]
    pub(crate) append: bool,
    /// Only say what would be created
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Read everything back and compare it with the file
    #[arg(long)]
    pub(crate) verify: bool,
    /// Threads that write [default: as many as there are cores, at most 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) jobs: Option<u16>,
    /// Say what was done as lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Import in this process, not in one whose crash is reported
    #[arg(long, hide = true)]
    pub(crate) in_process: bool,
}

/// Write a container or an array as a file of another format
///
/// The ending of FILE says which: .nc (NetCDF-4), .h5 or .hdf5, .npy (one array), .npz, .zarr (a
/// Zarr version 3 directory). It appears when it is complete, and replaces one of that name.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs export mnt/run1 run1.nc               # all arrays in it
  slabfs export mnt/run1/temp temp.npy         # one array

Next: `ncdump -h run1.nc` shows what is in it.")]
pub(crate) struct Export {
    /// A directory or an array on a mount
    pub(crate) source: PathBuf,
    /// The file to write
    pub(crate) file: PathBuf,
}

//! The command lines of `slabfs import` and `slabfs export`. `slabfs` includes this file for its help, and runs
//! `slabfs-formats` for the work.

use std::path::PathBuf;

/// Bring NetCDF files into a slabfs mount
///
/// Groups become directories, variables arrays, attributes tags, and names of dimensions the tag `dim_names`. Types, fill
/// values, unlimited dimensions and compression stay, so that `slabfs export` gives back what came in; what cannot be
/// represented is refused by name, before anything is created. The container appears when it is complete.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs import --dry-run sst.nc mnt/sst       # only says what would be created
  slabfs import sst.nc mnt/sst                 # an array for each variable
  mkdir mnt/runs && slabfs import a.nc b.nc mnt/runs
      makes mnt/runs/a and mnt/runs/b

Next: `slabfs info mnt/sst/TEMP` shows an array, `slabfs find --in mnt 'dim_names = LAT'` searches.")]
pub(crate) struct Import {
    /// NetCDF files of any kind
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// The container to create on a mount; or, if it exists, where one for each file is created
    pub(crate) dest: PathBuf,
    /// Only say what would be created
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Read everything back and compare it with the file
    #[arg(long)]
    pub(crate) verify: bool,
}

/// Write a container or an array as a NetCDF-4 file
///
/// The file appears when it is complete, and replaces one of that name.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs export mnt/run1 run1.nc               # all arrays in it
  slabfs export mnt/run1/temp temp.nc          # one array

Next: `ncdump -h run1.nc` shows what is in it.")]
pub(crate) struct Export {
    /// A directory or an array on a mount
    pub(crate) source: PathBuf,
    /// The file to write; its name ends in .nc
    pub(crate) file: PathBuf,
}

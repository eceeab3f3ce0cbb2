//! The command lines of `slabfs import`, `slabfs export` and `slabfs collate`. `slabfs` includes this file for its help, and runs
//! `slabfs-formats` for the work.

use std::path::PathBuf;

/// Bring files of other formats into a slabfs mount
///
/// NetCDF of any kind, HDF5, .npy, .npz, and Zarr directories. Groups become directories,
/// variables arrays, attributes tags, and names of dimensions the tag `dim_names`. Types, fill
/// values, unlimited dimensions and compression stay, so that `slabfs export` gives back what came
/// in; what cannot be represented is refused by name, before anything is created. What is imported
/// appears when it is complete.
#[derive(Debug, Clone, clap::Args)]
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
    /// Read everything back and compare it with the file; finds chunks that were damaged in the file already, which are
    /// copied undecoded
    #[arg(long)]
    pub(crate) verify: bool,
    /// Threads that read and write [default: two more than there are cores, at most 10]
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

/// Join the files that the processes of a parallel model wrote
///
/// Each input has a part of the variables, which the attribute `domain_decomposition` of its coordinates says. Compressed chunks
/// are copied as they are where those of the inputs fit together, and are compressed again on all processors where they do
/// not. Inputs that do not belong together are refused; parts that are in no input are filled. The output appears when it is
/// complete.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs collate -o ocean.nc ocean.nc.????
  slabfs collate -f -o ocean.nc 'ocean.nc.*'   # the pattern is expanded here
  slabfs collate -o all.nc @tiles.txt          # one file a line
  slabfs collate --dry-run -o ocean.nc ocean.nc.????
  slabfs collate -d 5 --chunks y=270,x=360 -o small.nc ocean.nc.????

Next: `ncdump -h ocean.nc` shows what is in it.")]
pub(crate) struct Collate {
    /// The files to join, in any order; also patterns in quotes, and @LIST for the files that are in LIST
    #[arg(required_unless_present_any = ["files_from", "worker"], value_name = "FILE")]
    pub(crate) inputs: Vec<PathBuf>,
    /// The file to write, of NetCDF-4; on a mount a name without .nc, .nc4 or .h5 is a container
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: PathBuf,
    /// Replace OUT if it exists; of directories only containers that were joined or imported
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Remove the inputs when the output is on disk; refused if a tile is missing
    #[arg(short, long)]
    pub(crate) remove: bool,
    /// Compress with this level of deflate, 0 for not at all [default: as the inputs]
    #[arg(short, long, value_name = "LEVEL", value_parser = clap::value_parser!(u32).range(0..=9))]
    pub(crate) deflate: Option<u32>,
    /// Shuffle bytes before they are compressed [default: as the inputs]
    #[arg(long, overrides_with = "no_shuffle")]
    pub(crate) shuffle: bool,
    /// Do not shuffle bytes
    #[arg(long, overrides_with = "shuffle")]
    pub(crate) no_shuffle: bool,
    /// The shape of chunks, as 1,270,360 or lat=270,lon=360 [default: as the inputs]
    #[arg(long, value_name = "SHAPE")]
    pub(crate) chunks: Option<String>,
    /// How many threads read and compress [default: one a processor]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,
    /// Read the names of more inputs from this file, one a line; - for standard input
    #[arg(long, value_name = "LIST")]
    pub(crate) files_from: Option<PathBuf>,
    /// Only say what would be done
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The process that reads and writes: the directory to write in
    #[arg(long, hide = true, value_name = "DIR")]
    pub(crate) worker: Option<PathBuf>,
    /// The output of a worker is a container
    #[arg(long, hide = true)]
    pub(crate) container: bool,
}

//! `slabfs create`: creates arrays. Everything is checked before a file is created.
//!
//! [`many`] creates many objects in one request; [`tags`] are those of a new array.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use slabfs_fs::view::attributes::Attribute;
use slabfs_fs::view::like::like;
use slabfs_fs::view::name::escape;
use slabfs_mdserver::api::SpecChange;
use slabfs_model::{DType, Fill, MaxDim, Space};

use crate::failure::usage;
use crate::onmount::{self, Mount};
use crate::{output, rules};

mod many;
mod tags;

pub(crate) use tags::{DIM_NAMES, assigned};

/// Create an array, or many.
///
/// The array reads as the fill value until it is written; nothing is stored for that. Properties that are not
/// given come from the array of --like, and then from the defaults of the directory (`slabfs set
/// --default-dtype …`), whose default tags are set as well.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs create mnt/temp --dims 16,16 --dtype f4
      16 x 16 floats
  slabfs create mnt/log --dims 0,1000 --max-dims unlimited,1000 --dtype f8
      grows by entire rows of 1000 as it is written
  slabfs create mnt/sst --dims 0,90,180 --max-dims unlimited,90,180 \\
      --dtype f4 --dim-names time,lat,lon
  slabfs create mnt/big --dims 4096,4096 --dtype u2 --codec shuffle+zstd:3
      chunks are compressed
  slabfs create mnt/db --dims 1024,1024 --dtype i4 --layout grid:64,64
      fixed chunks of 64 x 64, for small updates all over the array
  slabfs create mnt/temp2 --like mnt/temp --fill nan
      all properties of another array, except for the fill value
  echo '{\"path\": \"t\", \"dims\": [16, 16], \"dtype\": \"f4\", \"tags\": {\"step\": 3}}' |\\
      slabfs create mnt/run1 --from-json -
      many objects in one request, one a line (or a member of a JSON array)

Keys of --from-json are path, dims, dtype, max_dims, fill, layout, codec, placement and tags; without dims it is an \
ordinary file. Objects are created in batches of up to 1024 lines; a batch is created completely or not at all, \
and an error names its line and how many objects were created before.

Next: `cp block.bin 'mnt/temp@[0:10,0:9]'` writes a box of it (`slabfs help view` explains selections), `slabfs info \
mnt/temp` shows it, `slabfs set` changes it. By hand: touch mnt/temp; setfattr -n user.slabfs.dims -v 16,16 mnt/temp; …")]
pub(crate) struct Args {
    /// The new file, on a slabfs mount; with --from-json the directory that the paths are relative to
    path: PathBuf,
    /// Length of every axis, slowest first: 16,16 (`scalar` for a single element). Required, except with --like or
    /// --from-json
    #[arg(long, value_name = "N,N,…", required_unless_present_any = ["like", "from_json"])]
    dims: Option<String>,
    /// Element type, in NumPy's notation: i1 i2 i4 i8 u1 … f2 f4 f8 c8 c16 b1 S8 U8 V12. Required, except with
    /// --like or --from-json, or where the directory has a default
    #[arg(long, value_name = "TYPE")]
    dtype: Option<String>,
    #[command(flatten)]
    more: MoreFields,
    /// Copy every property that is not given from this array (or selection), but not its data or tags.
    /// Properties that do not fit the given ones are left out: limits below --dims or of another rank, the
    /// chunk shape of a grid of another rank, a fill value that --dtype cannot represent, a codec together with
    /// a grid
    #[arg(long, value_name = "OTHER")]
    like: Option<PathBuf>,
    /// With --like: copy its tags, too
    #[arg(long, requires = "like")]
    tags: bool,
    /// Names of the axes, slowest first: time,lat,lon. They become the tag dim_names
    #[arg(long, value_name = "NAMES", conflicts_with = "from_json")]
    dim_names: Option<String>,
    /// A tag of the new array; may be repeated
    #[arg(long = "tag", value_name = "KEY=VALUE", conflicts_with = "from_json")]
    tag: Vec<String>,
    /// Create the objects that this file describes; - is stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["dims", "dtype", "max_dims", "fill", "layout", "codec", "placement", "like"])]
    from_json: Option<PathBuf>,
    /// First create missing directories
    #[arg(short, long)]
    parents: bool,
}

/// Properties of an array other than dims and dtype.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct MoreFields {
    /// How far every axis may grow: unlimited,16 (default for a new array: its dims)
    #[arg(long, value_name = "N,N,…")]
    max_dims: Option<String>,
    /// Value of unwritten elements: 0, 1.5, nan, or the bytes as 0x… (default for a new array: 0)
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    fill: Option<String>,
    /// How the array is cut into chunks: aligned (as it is written), canonical (one chunk), grid:64,64
    #[arg(long, value_name = "LAYOUT")]
    layout: Option<String>,
    /// How chunks are compressed: none, lz4, zstd:3, deflate:6, shuffle+zstd:3, …
    #[arg(long, value_name = "CODEC")]
    codec: Option<String>,
    /// Which data server gets new chunks: dynamic (the emptiest), region (a block each), object (all on one),
    /// local (the one on this machine), server:3
    #[arg(long, value_name = "PLACEMENT")]
    placement: Option<String>,
}

/// The properties of an object as given on the command line.
#[derive(Debug, Default)]
pub(crate) struct Fields<'a> {
    /// Dims, if given.
    pub(crate) dims: Option<&'a str>,
    /// Element type, if given.
    pub(crate) dtype: Option<&'a str>,
    /// The other properties, if given.
    pub(crate) more: Option<&'a MoreFields>,
}

pub(crate) fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    if let Some(file) = &args.from_json {
        let made = many::run(&args.path, file, args.parents)?;
        return match (quiet, made) {
            (true, _) => Ok(()),
            (false, 1) => output::print("1 object made\n"),
            (false, made) => output::print(&format!("{made} objects made\n")),
        };
    }
    no_selection(&args.path)?;
    let trailing = args.path.as_os_str().as_bytes().ends_with(b"/");
    if trailing && !args.path.is_dir() {
        return Err(usage(format!(
            "{} ends with a slash, as a directory does; write the name of the new array without it",
            args.path.display()
        )));
    }
    if args.path.is_dir() {
        return Err(anyhow!(
            "{} is a directory; give the name of the new array in it",
            args.path.display()
        ));
    }
    let directory = match (args.parents, args.path.parent()) {
        (true, Some(parent)) => parent.to_owned(),
        _ => directory_of(&args.path)?,
    };
    let existing = existing(&directory);
    let mut spec = Fields {
        dims: args.dims.as_deref(),
        dtype: args.dtype.as_deref(),
        more: Some(&args.more),
    }
    .spec()?;
    if let Some(other) = &args.like {
        spec = like(spec, onmount::spec(other)?);
    }
    if spec.dtype.is_none() && onmount::default_dtype(existing).is_none() {
        return Err(usage(format!(
            "give --dtype, e.g. f4: {} has no default (see `slabfs set --help`)",
            directory.display()
        )));
    }
    if let Some(why) = rules::refused_change(&rules::new_file(), &spec) {
        return Err(usage(why));
    }
    let mut tags = assigned(&args.tag)?;
    if let Some(names) = &args.dim_names {
        let rank = spec.dims.as_ref().map(|dims| dims.len());
        let value = tags::dim_names(names, rank)?;
        if tags.insert(tags::DIM_NAMES.to_owned(), value).is_some() {
            return Err(usage(
                "--dim-names sets the tag dim_names; do not give --tag dim_names too".to_owned(),
            ));
        }
    }
    if let (true, Some(other)) = (args.tags, &args.like) {
        tags = tags::with(tags, other)?;
    }
    let mount = Mount::of(existing)?;
    if args.parents {
        std::fs::create_dir_all(&directory).map_err(|error| onmount::explain(&directory, error))?;
    }
    if !tags.is_empty() {
        return many::one(&mount, &args.path, &spec, tags);
    }
    make(&args.path)?;
    onmount::declare(&args.path, &spec).inspect_err(|_| {
        // The half-made object is of no use; the caller needs the error being returned, not that of the
        // removal.
        if let Err(error) = std::fs::remove_file(&args.path) {
            tracing::warn!(
                "{} stays behind as an empty file: {error}",
                args.path.display()
            );
        }
    })
}

/// Refuses a path that names a selection instead of a file.
fn no_selection(path: &Path) -> anyhow::Result<()> {
    let (Some(name), Some((array, _))) = (path.file_name(), onmount::selected(path)) else {
        return Ok(());
    };
    Err(usage(format!(
        "{0} names a part of {1}, not a new array: \"@[\" begins a selection where the file before it is there. Make the \
         array without the brackets; a name that really holds them is written with \"@@[\": {2}",
        path.display(),
        array.display(),
        path.with_file_name(OsStr::from_bytes(&escape(name.as_bytes())))
            .display()
    )))
}

/// The parent directory of a path; an error if it does not exist.
fn directory_of(path: &Path) -> anyhow::Result<PathBuf> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    match directory.symlink_metadata() {
        Ok(_) => Ok(directory),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(anyhow!(
            "the directory {0} does not exist; make it with `mkdir -p {0}`, or give --parents",
            directory.display()
        )),
        Err(error) => Err(onmount::explain(&directory, error)),
    }
}

/// A directory, or its closest ancestor that exists: new directories get the defaults of that.
fn existing(directory: &Path) -> &Path {
    let there = directory.ancestors().find(|above| above.exists());
    // None exists of a relative path whose first name is new.
    there.unwrap_or(Path::new("."))
}

/// Creates the empty file to which the properties are then applied.
fn make(path: &Path) -> anyhow::Result<()> {
    let made = OpenOptions::new().write(true).create_new(true).open(path);
    match made {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(exists(path)),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(anyhow!(
            "Permission denied: you may not make {} there; ask the owner of its directory, or see `ls -ld`",
            path.display()
        )),
        Err(error) => Err(onmount::explain(path, error)),
    }
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow!(
        "{} exists already; `slabfs set` changes an array, `slabfs info` shows it",
        path.display()
    )
}

impl Fields<'_> {
    /// The properties, each checked.
    pub(crate) fn spec(&self) -> anyhow::Result<SpecChange> {
        let none = MoreFields::default();
        let more = self.more.unwrap_or(&none);
        let given = [
            (Attribute::Dtype, self.dtype),
            (Attribute::Dims, self.dims),
            (Attribute::MaxDims, more.max_dims.as_deref()),
            (Attribute::Fill, more.fill.as_deref()),
            (Attribute::Layout, more.layout.as_deref()),
            (Attribute::Codec, more.codec.as_deref()),
            (Attribute::Placement, more.placement.as_deref()),
        ];
        let mut spec = SpecChange::default();
        for (field, text) in given {
            let Some(text) = text else { continue };
            // An empty value is an unset shell variable, not a scalar.
            if field == Attribute::Dims && text.trim().is_empty() {
                return Err(usage(
                    "--dims: it is empty; write the length of each axis, e.g. 16,16 (or scalar)",
                ));
            }
            let flag = field.name().replace('_', "-");
            field
                .put(text, &mut spec)
                .map_err(|error| usage(format!("--{flag}: {error}")))?;
        }
        if let Some(dims) = &spec.dims {
            let elem = spec.dtype.as_ref().map_or(1, DType::size);
            Space::new(dims, elem)
                .bytes()
                .map_err(|error| usage(format!("--dims: {error}")))?;
            if let Some(limits) = &spec.max_dims {
                check_limits(dims, limits)?;
            }
        }
        if let (Some(text), Some(dtype)) = (&spec.fill, &spec.dtype) {
            Fill::parse(text, dtype).map_err(|error| usage(format!("--fill: {error}")))?;
        }
        Ok(spec)
    }
}

fn check_limits(dims: &[u64], limits: &[MaxDim]) -> anyhow::Result<()> {
    if dims.len() != limits.len() {
        return Err(usage(format!(
            "--max-dims has {} axes and --dims has {}; give one limit for each axis, e.g. unlimited,16",
            limits.len(),
            dims.len()
        )));
    }
    match dims
        .iter()
        .zip(limits)
        .position(|(&dim, limit)| !limit.allows(dim))
    {
        Some(axis) => Err(usage(format!(
            "--max-dims: axis {axis} has {} elements already, more than its limit {}",
            dims[axis], limits[axis]
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(dims: &str, dtype: &str, more: MoreFields) -> anyhow::Result<SpecChange> {
        Fields {
            dims: Some(dims),
            dtype: Some(dtype),
            more: Some(&more),
        }
        .spec()
    }

    fn text(value: &str) -> Option<String> {
        Some(value.to_owned())
    }

    #[test]
    fn fields_become_canonical_texts() {
        let more = MoreFields {
            max_dims: text("unlimited, 16"),
            fill: text("nan"),
            layout: text("grid:8,8"),
            codec: text("shuffle+zstd:3"),
            placement: text("server:2"),
        };
        let spec = spec(" 16,16 ", "<f4", more).expect("a spec");
        let spec = slabfs_fs::view::attributes::json_of_spec(&spec);
        let fields: Vec<_> = spec
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect();
        for pair in [
            ("dims", Some("16,16")),
            ("dtype", Some("f4")),
            ("max_dims", Some("unlimited,16")),
            ("fill", Some("nan")),
            ("layout", Some("grid:8,8")),
            ("codec", Some("shuffle+zstd:3")),
            ("placement", Some("server:2")),
        ] {
            assert!(fields.contains(&pair), "{pair:?} in {fields:?}");
        }
    }

    #[test]
    fn wrong_fields_name_their_flag() {
        let none = MoreFields::default;
        let cases = [
            (spec("16,x", "f4", none()), "--dims"),
            (spec("9999999999999,9999999999999", "f4", none()), "--dims"),
            (spec("16", "flt", none()), "--dtype"),
            (
                spec(
                    "16",
                    "f4",
                    MoreFields {
                        max_dims: text("8"),
                        ..none()
                    },
                ),
                "--max-dims",
            ),
            (
                spec(
                    "16",
                    "f4",
                    MoreFields {
                        max_dims: text("16,16"),
                        ..none()
                    },
                ),
                "--max-dims",
            ),
            (
                spec(
                    "16",
                    "f4",
                    MoreFields {
                        fill: text("red"),
                        ..none()
                    },
                ),
                "--fill",
            ),
            (
                spec(
                    "16",
                    "f4",
                    MoreFields {
                        layout: text("tiles"),
                        ..none()
                    },
                ),
                "--layout",
            ),
            (
                spec(
                    "16",
                    "f4",
                    MoreFields {
                        codec: text("zstd:99"),
                        ..none()
                    },
                ),
                "--codec",
            ),
        ];
        let long = spec("16", "f16", none()).expect_err("not a type here");
        assert!(long.to_string().contains("f2 for 16 bits"), "{long}");
        for (result, flag) in cases {
            let error = result.expect_err(flag);
            assert!(error.to_string().starts_with(flag), "{error}");
            assert_eq!(crate::failure::status(&error), crate::failure::USAGE);
        }
    }
}

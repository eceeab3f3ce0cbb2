//! `slabfs meta`: dumps the metadata, and loads a dump.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};
use slabfs_etcd::{Checkpoints, CheckpointsAddr, Etcd, EtcdAddr, import};
use slabfs_mdserver::api::MdError;
use slabfs_mdserver::dump::{self, Loaded};
use slabfs_model::unhex;

use crate::args::show_size;
use crate::node;
use crate::onmount::Mount;
use crate::output;
use crate::owner::Owner;
use crate::progress::Progress;

/// How long the metadata service may take to start a dump.
const BEGIN: Duration = Duration::from_secs(600);
/// The mode of a new dump, which contains the names and tags of all users.
const PRIVATE: u32 = 0o600;
/// The most symbolic links that are followed, as in the kernel.
const MOST_LINKS: usize = 40;

/// Dump the metadata to a file, or restore it from a dump.
///
/// A dump contains names, tags, shapes, the locations of chunks, and the data servers; not the data. It is a
/// consistent snapshot, and is taken while the mount is in use. The file's format is documented
/// (docs/formats/dump.md) and the same on every machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs meta dump mnt monday.dump
  slabfs meta dump mnt - | gzip > monday.dump.gz
  slabfs meta load monday.dump --data new/md
  zcat monday.dump.gz | slabfs meta load - --data new2/md")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Write a snapshot of all metadata to a file
    #[command(after_help = "Examples:
  slabfs meta dump mnt monday.dump
  slabfs meta dump mnt - | gzip > monday.dump.gz")]
    Dump {
        /// The mount point, or any path below it
        mountpoint: PathBuf,
        /// The file to write, `-` for stdout. A new file is for its owner only (0600); a device or pipe gets the
        /// dump as it arrives
        file: PathBuf,
        /// Replace an existing file when the dump is complete; it keeps its mode
        #[arg(long)]
        force: bool,
    },
    /// Create a metadata directory from a dump
    #[command(after_help = "Examples:
  slabfs meta load monday.dump --data new/md
  zcat monday.dump.gz | slabfs meta load - --data new2/md

Next: start `slabfs up --data new mnt` or `slabfs mdserver --data new/md --listen ADDR`, with the chunks where they \
were (for `up`: os1, os2, ... in the same directory).")]
    Load {
        /// The dump, `-` for stdin
        file: PathBuf,
        /// The metadata directory to create; must be empty or missing
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
        /// Make it the metadata of services over a journal in etcd, at a prefix that is not used yet; --data is then the
        /// directory of one of them
        #[arg(long, value_name = "URL", requires = "checkpoints")]
        meta: Option<EtcdAddr>,
        /// With --meta: the place of checkpoints of these services, a directory or s3://BUCKET/PREFIX
        #[arg(long, value_name = "DIR|URL", requires = "meta")]
        checkpoints: Option<CheckpointsAddr>,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.what {
        What::Dump {
            mountpoint, file, ..
        } if file == Path::new("-") => {
            let mut stdout = BufWriter::new(std::io::stdout().lock());
            write(mountpoint, &mut stdout)?;
            stdout.flush().context("cannot write to stdout")
        }
        What::Dump {
            mountpoint,
            file,
            force,
        } => {
            let bytes = put(file, *force, |out| write(mountpoint, out))?;
            output::print(&format!("{}: {}\n", file.display(), show_size(bytes)))
        }
        What::Load {
            file,
            data,
            meta,
            checkpoints,
        } => match (meta, checkpoints) {
            (Some(meta), Some(checkpoints)) => load_to_etcd(file, data, meta, checkpoints),
            _ => load(file, data),
        },
    }
}

/// Writes a dump to `out`; returns its length.
fn write(mountpoint: &Path, out: &mut dyn Write) -> anyhow::Result<u64> {
    let mount = Mount::of(mountpoint)?;
    let begun = Instant::now();
    let mut ticket = Value::Null;
    let mut at = 0u64;
    let mut progress = None;
    loop {
        let page = mount.call(&json!({"op": "dump", "ticket": ticket, "offset": at}))?;
        ticket = page.get("ticket").cloned().unwrap_or_default();
        let Some(total) = page.get("total").and_then(Value::as_u64) else {
            if begun.elapsed() > BEGIN {
                bail!("the metadata service cannot write a dump; see its log");
            }
            continue;
        };
        let hex = page.get("hex").and_then(Value::as_str).unwrap_or_default();
        let bytes = unhex(hex).ok_or_else(|| anyhow!("the mount sent a page that is not hex"))?;
        if bytes.is_empty() {
            if at == total {
                return Ok(total);
            }
            bail!("the dump ended after {at} of {total} bytes");
        }
        out.write_all(&bytes).context("writing the dump")?;
        at += bytes.len() as u64;
        let progress = progress.get_or_insert_with(|| Progress::begin("dumping", total));
        progress.at(at);
    }
}

/// Writes a dump to the target of `path`: a file is replaced when all of the dump is on disk, a device or a
/// pipe gets it as it arrives.
fn put(
    path: &Path,
    force: bool,
    fill: impl FnOnce(&mut dyn Write) -> anyhow::Result<u64>,
) -> anyhow::Result<u64> {
    let target = followed(path)?;
    match fs::metadata(&target) {
        Ok(there) if there.is_dir() => Err(anyhow!(
            "{} is a directory; give the file to write",
            path.display()
        )),
        Ok(there) if !there.is_file() => straight(&target, fill),
        Ok(_) if !force => Err(anyhow!(
            "{} exists already; give another name, or replace it with --force",
            path.display()
        )),
        Ok(there) => replace(&target, there.permissions(), fill),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            replace(&target, Permissions::from_mode(PRIVATE), fill)
        }
        Err(error) => Err(error).with_context(|| format!("cannot make {}", path.display())),
    }
}

/// Follows the symbolic links of `path`, also if the last one dangles.
fn followed(path: &Path) -> anyhow::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
    bail!("{} leads over too many symbolic links", path.display());
}

/// Writes to a file that is not a regular file.
fn straight(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> anyhow::Result<u64>,
) -> anyhow::Result<u64> {
    let with = || format!("cannot write to {}", path.display());
    let file = OpenOptions::new()
        .write(true)
        .open(path)
        .with_context(with)?;
    let mut out = BufWriter::new(file);
    let bytes = fill(&mut out).with_context(with)?;
    let file = out.into_inner().map_err(|error| error.into_error());
    match file.with_context(with)?.sync_all() {
        // Pipes and most devices have nothing to sync.
        Err(error) if error.raw_os_error() != Some(libc::EINVAL) => Err(error).with_context(with),
        _ => Ok(bytes),
    }
}

/// Writes `path` under a temporary name and renames it when it is on disk.
fn replace(
    path: &Path,
    mode: Permissions,
    fill: impl FnOnce(&mut dyn Write) -> anyhow::Result<u64>,
) -> anyhow::Result<u64> {
    let part = next_to(path, ".part");
    let result = (|| {
        let file = private(&part)?;
        let with = || format!("writing {}", part.display());
        let mut out = BufWriter::new(file);
        let bytes = fill(&mut out)?;
        let file = out.into_inner().map_err(|error| error.into_error());
        let file = file.with_context(with)?;
        file.set_permissions(mode).with_context(with)?;
        file.sync_all().with_context(with)?;
        dump::check(&part).with_context(|| format!("{} is not good", part.display()))?;
        fs::rename(&part, path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(bytes)
    })();
    if result.is_err() {
        // The partial file is of no use; the first error is the one to return.
        let _ = fs::remove_file(&part);
    }
    result
}

/// `path` with `ending` appended.
fn next_to(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Creates a file that only its owner can access; a file of an earlier attempt is removed.
fn private(path: &Path) -> anyhow::Result<File> {
    let with = || format!("cannot make {}", path.display());
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => fs::remove_file(path).with_context(with)?,
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(PRIVATE);
    options.open(path).with_context(with)
}

fn load(file: &Path, data: &Path) -> anyhow::Result<()> {
    check_unowned(data)?;
    let loaded = load_from(file, data)?;
    output::print(&format!(
        "{}: {} keys, up to commit {}; start the metadata service on it\n",
        data.display(),
        loaded.pairs,
        loaded.last
    ))
}

/// Makes a dump the metadata of services over a journal in etcd.
fn load_to_etcd(
    file: &Path,
    data: &Path,
    meta: &EtcdAddr,
    checkpoints: &CheckpointsAddr,
) -> anyhow::Result<()> {
    check_unowned(data)?;
    let etcd = Arc::new(Etcd::new(meta)?);
    let checkpoints = Checkpoints::open(checkpoints)?;
    node::make_private(data)?;
    let mut pairs = 0;
    let last = import(&etcd, data, &checkpoints, |store| {
        pairs = load_from(file, store)?.pairs;
        anyhow::Ok(())
    })?;
    output::print(&format!(
        "{meta}: {pairs} keys, up to commit {last}; start metadata services with --meta {meta}, one of them with --data {}\n",
        data.display(),
    ))
}

fn check_unowned(data: &Path) -> anyhow::Result<()> {
    match Owner::of(data) {
        Some(Owner::Up) => {
            bail!(
                "{0} is the directory of `slabfs up`; the metadata in it is {0}/md: give that, and move what is there away",
                data.display()
            );
        }
        Some(Owner::Objserver) => {
            bail!(
                "{} holds the chunks of an objserver; give another directory",
                data.display()
            );
        }
        Some(Owner::Mdserver) | None => Ok(()),
    }
}

fn load_from(file: &Path, data: &Path) -> anyhow::Result<Loaded> {
    if file == Path::new("-") {
        spooled(&mut std::io::stdin().lock(), "stdin", data)
    } else {
        match fs::metadata(file) {
            Ok(there) if there.is_file() => dump::load(file, data).map_err(words),
            Ok(there) if there.is_dir() => bail!(
                "{} is a directory; give a file that `slabfs meta dump` wrote",
                file.display()
            ),
            Ok(_) => {
                let shown = file.display().to_string();
                let mut stream =
                    File::open(file).with_context(|| format!("cannot read {shown}"))?;
                spooled(&mut stream, &shown, data)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => bail!(
                "{} does not exist; give a file that `slabfs meta dump` wrote",
                file.display()
            ),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }
}

/// Loads a dump from a pipe. Loading reads the dump twice (check, then load), so it is copied first to a file
/// next to the new directory.
fn spooled(from: &mut dyn Read, shown: &str, data: &Path) -> anyhow::Result<Loaded> {
    let path = next_to(data, ".part");
    if let Some(parent) = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
    {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    }
    let mut file = private(&path)?;
    let result = std::io::copy(from, &mut file)
        .with_context(|| format!("copying {shown} to {}", path.display()))
        .and_then(|_| dump::load(&path, data).map_err(words));
    // After a success the directory has everything; after a failure nothing refers to the file.
    let _ = fs::remove_file(&path);
    result
}

/// The error with its own text, which names the file.
fn words(error: MdError) -> anyhow::Error {
    match error {
        MdError::Io(text) | MdError::Invalid(text) => anyhow!(text),
        other => anyhow!("{other}"),
    }
}

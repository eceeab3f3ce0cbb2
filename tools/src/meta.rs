//! `slabfs meta`: dumps of the metadata, and the way back from one.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use serde_json::{Value, json};
use slabfs_mdserver::dump;

use crate::args::show_size;
use crate::failure::usage;
use crate::node::Owner;
use crate::onmount::Mount;
use crate::output;

/// How long a dump may take to begin.
const BEGIN: Duration = Duration::from_secs(600);

/// Dump the metadata of a mount to a file, or make a metadata directory of such a file.
///
/// A dump holds names, tags, shapes, where each chunk lies, and the data servers; not the data. It is
/// what everything was at one moment, and is taken while the mount is in use. The file's format is
/// documented (docs/formats/dump.md) and the same on every machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs meta dump mnt monday.dump
  slabfs meta dump mnt - | ssh other 'cat > monday.dump'
  slabfs meta load monday.dump --data new/md
      then start `slabfs up --data new mnt` or `slabfs mdserver --data new/md`, with the chunks where
      they were (for `up`: os1, os2, ... in the same directory)")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Write all metadata, as it is at one moment, to a file
    Dump {
        /// The mount point, or anything below it
        mountpoint: PathBuf,
        /// The file to write, `-` for stdout; one that is there is replaced when all is well
        file: PathBuf,
    },
    /// Make a metadata directory of a dump
    Load {
        /// The dump
        file: PathBuf,
        /// The metadata directory to make; must be empty or missing
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match &args.what {
        What::Dump { mountpoint, file } if file == Path::new("-") => {
            let mut stdout = BufWriter::new(std::io::stdout().lock());
            write(mountpoint, &mut stdout)?;
            stdout.flush().context("cannot write to stdout")
        }
        What::Dump { mountpoint, file } => {
            let bytes = replace(file, |out| write(mountpoint, out))?;
            output::print(&format!("{}: {}\n", file.display(), show_size(bytes)))
        }
        What::Load { file, data } => load(file, data),
    }
}

/// Writes a dump to `out`; answers its length.
fn write(mountpoint: &Path, out: &mut dyn Write) -> anyhow::Result<u64> {
    let mount = Mount::of(mountpoint)?;
    let begun = Instant::now();
    let mut ticket = Value::Null;
    let mut at = 0u64;
    loop {
        let page = mount.call(&json!({"op": "dump", "ticket": ticket, "offset": at}))?;
        ticket = page.get("ticket").cloned().unwrap_or_default();
        let Some(total) = page.get("total").and_then(Value::as_u64) else {
            if begun.elapsed() > BEGIN {
                bail!("the metadata service does not get a dump written; its log says why");
            }
            continue;
        };
        let hex = page.get("hex").and_then(Value::as_str).unwrap_or_default();
        let bytes = unhex(hex).ok_or_else(|| anyhow!("the mount gave a page that is no hex"))?;
        if bytes.is_empty() {
            if at == total {
                return Ok(total);
            }
            bail!("the dump ended after {at} of {total} bytes");
        }
        out.write_all(&bytes).context("writing the dump")?;
        at += bytes.len() as u64;
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8));
    rest.is_empty().then(|| bytes.collect()).flatten()
}

/// Writes `path` under another name and gives it its own when it is on disk.
fn replace(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> anyhow::Result<u64>,
) -> anyhow::Result<u64> {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let result = (|| {
        let file =
            File::create(&part).with_context(|| format!("cannot make {}", part.display()))?;
        let mut out = BufWriter::new(file);
        let bytes = fill(&mut out)?;
        let file = out
            .into_inner()
            .map_err(|error| error.into_error())
            .with_context(|| format!("writing {}", part.display()))?;
        file.sync_all()
            .with_context(|| format!("writing {}", part.display()))?;
        dump::check(&part).with_context(|| format!("{} is not good", part.display()))?;
        fs::rename(&part, path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(bytes)
    })();
    if result.is_err() {
        // What is left of it is of no use; the error that counts is the first one.
        let _ = fs::remove_file(&part);
    }
    result
}

fn load(file: &Path, data: &Path) -> anyhow::Result<()> {
    match Owner::of(data) {
        Some(Owner::Up) => {
            return Err(usage(format!(
                "{0} is the directory of `slabfs up`; the metadata in it is {0}/md: give that, and move what is there away",
                data.display()
            )));
        }
        Some(Owner::Objserver) => {
            return Err(usage(format!(
                "{} holds the chunks of an objserver; give another directory",
                data.display()
            )));
        }
        Some(Owner::Mdserver) | None => {}
    }
    let loaded = dump::load(file, data).map_err(|error| anyhow!("{error}"))?;
    output::print(&format!(
        "{}: {} keys, up to commit {}; start the metadata service on it\n",
        data.display(),
        loaded.pairs,
        loaded.last
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_comes_back() {
        assert_eq!(unhex("00ff1a"), Some(vec![0, 255, 26]));
        assert_eq!(unhex(""), Some(vec![]));
        assert_eq!(unhex("0"), None);
        assert_eq!(unhex("0g"), None);
    }
}

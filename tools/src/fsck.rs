//! `slabfs fsck`: checks the metadata for consistency, and against the chunks of the data servers.
//!
//! The invariants are defined in `slabfs_mdserver::check`. This file selects the directories, prints the
//! findings, and does the only repair.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use serde_json::json;
use slabfs_mdserver::check::{self, Census, Class, Depth, Facts, Finding, Looked};
use slabfs_mdserver::kv::{KvError, LocalKv, MetaKv, Recovery};
use slabfs_model::ServerId;
use slabfs_objstore::store::Inspect;
use slabfs_s3::{Bucket, S3Addr, S3Options, S3Store};

use crate::args::show_size;
use crate::node;
use crate::output;
use crate::owner::Owner;
use crate::progress::Progress;

/// Check the metadata, and the chunks against it.
///
/// Nothing may be missing, doubled or contradictory. The processes on the directories must have been stopped. The
/// directories are opened and closed as by a start and a stop: after an unclean shutdown recovery runs, and they count as
/// cleanly closed afterwards. Nothing else is changed without --repair. Every finding is a line on stdout. The exit status
/// is 0 when everything was checked and nothing was found; 1 when something was found, the check could not be done, or
/// the directory of a data server that has chunks was not named; 2 for a wrong command line.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  slabfs fsck --data data
      all of what `slabfs up` keeps there: md, os1, os2, ...
  slabfs fsck --data data --deep
      reads every chunk and compares it with its checksums
  slabfs fsck --data md --chunks os1 --chunks os2
      the directories of an mdserver and of its objservers
  slabfs fsck --data data --json | jq '.findings[].class'")]
pub(crate) struct Args {
    /// The --data of `slabfs up`, or of the mdserver
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// The --data of an objserver; repeat for each. Directories that are not named are not checked
    #[arg(long, value_name = "DIR")]
    chunks: Vec<PathBuf>,
    /// The --store of objservers over a bucket, whose --data has a cache: the chunks in the bucket are checked
    #[arg(long, value_name = "URL")]
    store: Option<S3Addr>,
    /// Also read the data of every chunk, and look up every tag in the index
    #[arg(long)]
    deep: bool,
    /// Delete unreferenced chunks, if nothing else was found
    #[arg(long)]
    repair: bool,
    /// With --repair: also delete chunks stored after this state of the metadata, if no other metadata refers
    /// to them any more
    #[arg(long, requires = "repair")]
    drop_newer: bool,
    /// As JSON, for programs
    #[arg(long)]
    json: bool,
}

/// The directories of one slabfs installation.
struct Places {
    metadata: PathBuf,
    chunks: Vec<PathBuf>,
    /// Whether `chunks` has the directory of every data server.
    complete: bool,
}

/// The findings, and how much was checked.
#[derive(Default)]
struct Report {
    census: Census,
    recovery: Option<Recovery>,
    servers: BTreeMap<u32, Looked>,
    /// Data servers that have chunks according to the metadata, and whose directories were not named.
    unseen: Vec<u32>,
    findings: Vec<Finding>,
    /// Number of findings beyond those stored, and their classes.
    more: u64,
    more_of: BTreeSet<Class>,
    removed: u64,
    /// Tag entries that were looked up in the index.
    entries: Option<u64>,
}

/// Chunks listed at a time.
const PAGE: usize = 1024;

/// Findings that are stored. A store that is broken everywhere must not exhaust memory too.
const MAX_FINDINGS: usize = 100_000;

impl Report {
    fn add(&mut self, finding: Finding) {
        if self.findings.len() < MAX_FINDINGS {
            self.findings.push(finding);
        } else {
            self.more += 1;
            self.more_of.insert(finding.class);
        }
    }

    fn count(&self) -> u64 {
        self.findings.len() as u64 + self.more
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let places = places(args)?;
    let report = examine(&places, args)?;
    if args.json {
        output::json(&as_json(&report))?;
    } else {
        output::print(&as_text(&report, args))?;
    }
    match report.count() {
        0 if report.unseen.is_empty() => Ok(()),
        0 => bail!("{}", not_all(&report.unseen)),
        1 => bail!("1 finding"),
        n => bail!("{n} findings"),
    }
}

/// The error text for data servers whose chunks were not checked.
fn not_all(unseen: &[u32]) -> String {
    let ids: Vec<String> = unseen.iter().map(ToString::to_string).collect();
    format!(
        "not all was looked at: objects have chunks on data servers whose directories were not named ({}); name each with --chunks",
        ids.join(", ")
    )
}

/// Determines the kind of the directories; fails while a process uses them.
fn places(args: &Args) -> anyhow::Result<Places> {
    let data = &args.data;
    if data.join("copy.json").is_file() {
        bail!(
            "{} is that of a service with its journal in etcd; stop it, and give its copy: --data {}",
            data.display(),
            data.join("copy").display()
        );
    }
    let owner = Owner::of(data).ok_or_else(|| {
        anyhow!(
            "{} holds nothing of slabfs; give the --data of `slabfs up` or of the mdserver",
            data.display()
        )
    })?;
    owner.claim(data, None)?;
    let places = match owner {
        Owner::Objserver => {
            return Err(anyhow!(
                "{} is the directory of an objserver; give it with --chunks, and that of the mdserver with --data",
                data.display()
            ));
        }
        Owner::Mdserver => Places {
            metadata: data.clone(),
            chunks: args.chunks.clone(),
            complete: false,
        },
        Owner::Up if !args.chunks.is_empty() => {
            return Err(anyhow!(
                "{} holds the chunks too; --chunks goes with the directory of an mdserver",
                data.display()
            ));
        }
        Owner::Up => Places {
            metadata: data.join("md"),
            chunks: stores_in(data)?,
            complete: true,
        },
    };
    let mut places = places;
    distinct(&mut places.chunks);
    for dir in &places.chunks {
        if Owner::of(dir) != Some(Owner::Objserver) {
            return Err(anyhow!(
                "{} holds no chunks; give the --data of an objserver",
                dir.display()
            ));
        }
        Owner::Objserver.claim(dir, None)?;
    }
    Ok(places)
}

/// Removes duplicates, also if one directory was named by different paths.
fn distinct(dirs: &mut Vec<PathBuf>) {
    let mut seen = BTreeSet::new();
    dirs.retain(|dir| seen.insert(dir.canonicalize().unwrap_or_else(|_| dir.clone())));
}

/// `os1`, `os2`, ... in the directory of an `up`; only those that were used.
fn stores_in(data: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(data).with_context(|| format!("listing {}", data.display()))?;
    for entry in entries {
        let path = entry
            .with_context(|| format!("listing {}", data.display()))?
            .path();
        let number = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_prefix("os")?.parse::<u32>().ok());
        if let Some(number) = number
            && Owner::of(&path) == Some(Owner::Objserver)
        {
            found.push((number, path));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

fn examine(places: &Places, args: &Args) -> anyhow::Result<Report> {
    let mut report = Report::default();
    let dir = &places.metadata;
    let (kv, recovery) = match check::open(dir) {
        Ok(opened) => opened,
        Err(KvError::Damaged { damage, .. }) => {
            for damage in damage {
                report.add(Finding {
                    class: Class::Damaged,
                    subject: dir.display().to_string(),
                    detail: damage.to_string(),
                });
            }
            return Ok(report);
        }
        Err(error) => {
            return Err(error).with_context(|| format!("cannot check {}", dir.display()));
        }
    };
    let facts = check::metadata(&kv, &mut |finding| report.add(finding))
        .with_context(|| format!("cannot check {}", dir.display()))?;
    report.census = facts.census;
    if args.deep {
        let looked = check::index(&kv, dir, &recovery, &mut |finding| report.add(finding))
            .with_context(|| format!("cannot check the index in {}", dir.display()))?;
        report.entries = Some(looked);
    }
    report.recovery = Some(recovery);
    look(&kv, &facts, places, args, &mut report)?;
    kv.close()
        .with_context(|| format!("closing {}", dir.display()))?;
    Ok(report)
}

/// Checks the metadata against each data server's chunks.
fn look(
    kv: &LocalKv,
    facts: &Facts,
    places: &Places,
    args: &Args,
    report: &mut Report,
) -> anyhow::Result<()> {
    let depth = if args.deep { Depth::Data } else { Depth::Heads };
    let mut stores = Vec::new();
    for dir in &places.chunks {
        let chunks = Chunks::open(dir, args)?;
        let store = Arc::clone(&chunks.store);
        let known = facts.servers.iter();
        let id = known
            .filter(|(_, server)| server.uuid == chunks.id)
            .map(|(id, _)| *id)
            .next();
        match id {
            Some(id) => {
                let progress = match args.deep && !args.json {
                    true => Progress::begin("reading chunks", stored(&*store)?),
                    false => Progress::none(),
                };
                let seen = &mut |bytes| progress.at(bytes);
                let looked = facts
                    .chunks(
                        kv,
                        (id, &*store),
                        depth,
                        &mut |finding| report.add(finding),
                        seen,
                    )
                    .with_context(|| format!("cannot check {}", dir.display()))?;
                report.servers.insert(id.0, looked);
                let left = chunks.compare(report)?;
                stores.push((id, chunks, left));
            }
            None => foreign(&*store, dir, report)?,
        }
    }
    for (id, server) in &facts.servers {
        if !server.named || report.servers.contains_key(&id.0) {
            continue;
        }
        if !places.complete {
            report.unseen.push(id.0);
        } else {
            report.add(Finding {
                class: Class::ServerGone,
                subject: format!("data server {id}"),
                detail: "its directory is not here, and objects have chunks on it".to_owned(),
            });
        }
    }
    if args.repair {
        repair(&stores, args.drop_newer, report)?;
    }
    for (_, chunks, _) in stores {
        chunks.close()?;
    }
    Ok(())
}

/// The chunks of a data server, and those of a bucket if they are there.
struct Chunks {
    id: [u8; 16],
    store: Arc<dyn Inspect>,
    bucket: Option<Arc<S3Store>>,
}

impl Chunks {
    fn open(dir: &Path, args: &Args) -> anyhow::Result<Chunks> {
        let is_cache = dir.join("identity").is_file();
        match (is_cache, &args.store) {
            (true, Some(addr)) => {
                let unusable = || format!("cannot use {addr} with the cache {}", dir.display());
                let bucket = Bucket::open(addr).with_context(unusable)?;
                let options = S3Options {
                    durability: addr.durability(),
                    ..S3Options::default()
                };
                let store = S3Store::open(dir, bucket, None, options).with_context(unusable)?;
                let store = Arc::new(store);
                Ok(Chunks {
                    id: store.id(),
                    store: Arc::clone(&store) as Arc<dyn Inspect>,
                    bucket: Some(store),
                })
            }
            (true, None) => bail!(
                "{} is the cache of an objserver over a bucket; give its --store, too",
                dir.display()
            ),
            (false, _) => {
                let store = node::open_store(dir)?;
                Ok(Chunks {
                    id: store.id(),
                    store,
                    bucket: None,
                })
            }
        }
    }

    /// Reports objects of the bucket that are missing, or that nothing refers to; returns the latter.
    fn compare(&self, report: &mut Report) -> anyhow::Result<Vec<String>> {
        let Some(bucket) = &self.bucket else {
            return Ok(Vec::new());
        };
        let objects = bucket.compare()?;
        for (name, key) in objects.missing {
            report.add(Finding {
                class: Class::MissingChunk,
                subject: name.to_string(),
                detail: format!("its object {key} is not in the bucket"),
            });
        }
        for key in &objects.unreferenced {
            report.add(Finding {
                class: Class::Garbage,
                subject: format!("object {key}"),
                detail: "no chunk is in it".to_owned(),
            });
        }
        Ok(objects.unreferenced)
    }

    /// Leaves the bucket as a data server that ends in order.
    fn close(self) -> anyhow::Result<()> {
        match self.bucket {
            Some(bucket) => bucket.close().context("closing the bucket"),
            None => Ok(()),
        }
    }
}

/// The bytes of all chunks of a data server.
fn stored(store: &dyn Inspect) -> anyhow::Result<u64> {
    let (mut bytes, mut after) = (0, None);
    loop {
        let page = store.list(after, PAGE)?;
        bytes += page.iter().map(|(_, bytes)| bytes).sum::<u64>();
        match page.last() {
            Some((name, _)) => after = Some(name.clone()),
            None => return Ok(bytes),
        }
    }
}

/// Handles a directory whose data server the metadata does not know: one that was never registered is empty.
fn foreign(store: &dyn Inspect, dir: &Path, report: &mut Report) -> anyhow::Result<()> {
    if !store.list(None, 1)?.is_empty() {
        report.add(Finding {
            class: Class::ForeignServer,
            subject: dir.display().to_string(),
            detail: "has chunks, and the metadata does not know it".to_owned(),
        });
    }
    Ok(())
}

/// Deletes unreferenced chunks if nothing else is wrong, because only then is it certain that they stay
/// unreferenced. Whether chunks stored after the metadata may go only the user can know (`drop_newer`).
fn repair(
    stores: &[(ServerId, Chunks, Vec<String>)],
    drop_newer: bool,
    report: &mut Report,
) -> anyhow::Result<()> {
    let goes = |class: Class| match class {
        Class::Garbage => true,
        Class::NewerChunk => drop_newer,
        _ => false,
    };
    let found = report.findings.iter().map(|finding| finding.class);
    if !found.chain(report.more_of.iter().copied()).all(goes) {
        tracing::warn!("nothing is deleted: first repair what else was found");
        return Ok(());
    }
    for (id, chunks, left) in stores {
        let store = &chunks.store;
        if let Some(bucket) = &chunks.bucket {
            bucket.delete_unreferenced(left)?;
        }
        let Some(looked) = report.servers.get(&id.0) else {
            continue;
        };
        let later = if drop_newer { &looked.newer[..] } else { &[] };
        for names in [&looked.garbage[..], later] {
            store.delete(names)?;
            report.removed += names.len() as u64;
        }
        store.sync(&[])?;
    }
    report.findings.clear();
    report.more = 0;
    Ok(())
}

fn as_text(report: &Report, args: &Args) -> String {
    let mut out = String::new();
    for finding in &report.findings {
        out.push_str(&format!("{finding}\n"));
    }
    if report.more > 0 {
        out.push_str(&format!("... and {} more\n", report.more));
    }
    let Census {
        inodes,
        names,
        attributes,
        tiles,
        sessions,
        servers,
    } = report.census;
    if let Some(recovery) = &report.recovery {
        out.push_str(&format!("metadata: {recovery}\n"));
        out.push_str(&format!(
            "metadata: {inodes} inodes, {names} names, {attributes} attributes, {tiles} chunk records, {sessions} sessions, {servers} data servers\n"
        ));
    }
    if let Some(entries) = report.entries {
        out.push_str(&format!("index: {entries} entries looked for\n"));
    }
    let how = if args.deep { "read" } else { "looked at" };
    for (id, looked) in &report.servers {
        out.push_str(&format!(
            "data server {id}: {} chunks {how}, {}\n",
            looked.chunks,
            show_size(looked.bytes)
        ));
    }
    let unseen = servers.saturating_sub(report.servers.len() as u64);
    if unseen > 0 {
        out.push_str(&format!("{unseen} data servers not looked at\n"));
    }
    if report.removed > 0 {
        out.push_str(&format!(
            "{} unreferenced chunks were deleted\n",
            report.removed
        ));
    }
    out.push_str(&match report.count() {
        0 if !report.unseen.is_empty() => {
            format!("nothing found, but {}\n", not_all(&report.unseen))
        }
        0 => "clean\n".to_owned(),
        1 => "1 finding\n".to_owned(),
        n => format!("{n} findings\n"),
    });
    out
}

fn as_json(report: &Report) -> serde_json::Value {
    json!({
        "clean": report.count() == 0 && report.unseen.is_empty(),
        "servers_not_looked_at": report.unseen,
        "findings": report.findings,
        "not_listed": report.more,
        "metadata": report.census,
        "recovery": report.recovery.as_ref().map(ToString::to_string),
        "index_entries": report.entries,
        "servers": report.servers,
        "deleted": report.removed,
    })
}

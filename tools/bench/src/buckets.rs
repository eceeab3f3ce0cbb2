//! `slabfs-bench buckets`: the chunk store over a bucket, compared with the same object store alone.
//!
//! SeaweedFS with its S3 interface runs on the loopback. Threads write chunks of one size and sync each (`store`), or create
//! objects of that size (`alone`), as many at the same time; then all are read, by a store whose cache is empty, and alone.

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutPayload, path::Path};
use slabfs_model::{ChunkId, Codec, Fill, Hyperslab, Region};
use slabfs_objstore::{ChunkForm, ChunkName, ChunkStore};
use slabfs_s3::{Bucket, S3Options, S3Store};

use crate::args::{Common, needed};
use crate::cleanup::{command, foreign, new_directory, output};
use crate::table::{Brackets, Format, Table};

/// The ports of SeaweedFS: the master's, and the next ones.
const FIRST_PORT: u16 = 23_900;
const CREDENTIALS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "key"),
    ("AWS_SECRET_ACCESS_KEY", "secret"),
];

/// The chunk store over a bucket, compared with the object store alone
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct BucketsArgs {
    /// Sizes in MiB
    #[arg(long, value_delimiter = ',', default_values = ["1", "8"])]
    mib: Vec<u64>,
    /// Requests at the same time
    #[arg(long, default_value = "4", value_parser = clap::value_parser!(u64).range(1..=64))]
    clients: u64,
    /// MiB of each measurement
    #[arg(long, default_value = "256")]
    total: u64,
    /// Rounds
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u64).range(1..=50))]
    rounds: u64,
    /// The program `weed` (default: that of tools/setup --tests)
    #[arg(long, value_name = "PATH")]
    weed: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

/// Measures all rounds and prints the table.
pub(crate) fn run(args: &BucketsArgs) -> anyhow::Result<()> {
    let columns = ["store", "alone"];
    let brackets = Brackets::Column("alone");
    let labels = &["MiB", "what"];
    let table = Table::new("buckets", labels, columns, brackets, Format::Samples);
    crate::report(&args.common, table, |table| measure(args, table))
}

fn measure(args: &BucketsArgs, table: &mut Table) -> anyhow::Result<()> {
    let work = new_directory(args.common.work.as_deref(), "buckets")?;
    let endpoint = start_weed(args, &work)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("threads for the object store")?;
    let addr = format!("s3://chunks/bench?endpoint={endpoint}&region=us-east-1");
    let addr = addr.parse().map_err(anyhow::Error::msg)?;
    // The first one sets the provider of TLS up for the process.
    drop(Bucket::open_with(&addr, &CREDENTIALS)?);
    let alone: Arc<dyn ObjectStore> = Arc::new(
        AmazonS3Builder::new()
            .with_bucket_name("chunks")
            .with_endpoint(&endpoint)
            .with_region("us-east-1")
            .with_access_key_id(CREDENTIALS[0].1)
            .with_secret_access_key(CREDENTIALS[1].1)
            .with_client_options(ClientOptions::new().with_allow_http(true))
            .build()?,
    );
    let mut id = 0;
    for round in 0..=args.rounds {
        for &mib in &args.mib {
            let len = (mib << 20) as usize;
            let many = args.total.div_ceil(mib);
            let bytes: Vec<u8> = (0..len as u64)
                .map(|i| crate::search::mix(i) as u8)
                .collect();
            let name = format!("{round}-{mib}");
            let rate = |begun: Instant| (many * mib) as f64 / begun.elapsed().as_secs_f64();
            let mut rates = Vec::new();

            let open = |dir: &str| {
                let bucket = Bucket::open_with(&addr, &CREDENTIALS)?;
                S3Store::open(&work.join(dir), bucket, Some(&name), S3Options::default())
            };
            let form = ChunkForm {
                shape: [len as u64].into_iter().collect(),
                elem: 1,
                codec: Codec::None,
                fill: Fill::zero(),
            };
            let names: Vec<ChunkName> = (id..id + many)
                .map(|i| ChunkName::Free(ChunkId(i)))
                .collect();
            id += many;
            let store = open(&format!("{name}-a"))?;
            let begun = Instant::now();
            each(args.clients, &names, &|name| {
                store.put(name, &form, &[IoSlice::new(&bytes)])?;
                store.sync(std::slice::from_ref(name))?;
                Ok(())
            })?;
            rates.push(("writes", "store", rate(begun)));
            store.close()?;
            drop(store);

            let keys: Vec<Path> = (0..many)
                .map(|i| Path::from(format!("alone/{name}/{i}")))
                .collect();
            let payload = PutPayload::from(bytes.clone());
            let clients = args.clients as usize;
            let begun = Instant::now();
            let create = |key: &Path| {
                let (alone, key, payload) = (Arc::clone(&alone), key.clone(), payload.clone());
                async move {
                    let made = alone.put_opts(&key, payload, PutMode::Create.into());
                    match made.await {
                        // An attempt whose answer was lost is repeated.
                        Ok(_) | Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
                        Err(error) => Err(error),
                    }
                }
            };
            let puts = keys.iter().map(create);
            let puts = futures_util::stream::iter(puts).buffer_unordered(clients);
            runtime.block_on(puts.try_for_each(|()| async { Ok(()) }))?;
            rates.push(("writes", "alone", rate(begun)));

            let store = open(&format!("{name}-b"))?;
            let all = Hyperslab::from_region(&Region::all(&form.shape));
            let begun = Instant::now();
            each(args.clients, &names, &|name| {
                let mut out = vec![0; len];
                store.read(name, &form, &all, &mut out)?;
                ensure!(out[len - 1] == bytes[len - 1], "wrong bytes");
                Ok(())
            })?;
            rates.push(("cold reads", "store", rate(begun)));
            let begun = Instant::now();
            each(args.clients, &names, &|name| {
                let mut out = vec![0; len];
                Ok(store.read(name, &form, &all, &mut out)?)
            })?;
            rates.push(("warm reads", "store", rate(begun)));
            store.close()?;
            drop(store);

            let begun = Instant::now();
            let gets = keys
                .iter()
                .map(|key| async { alone.get(key).await?.bytes().await });
            let gets = futures_util::stream::iter(gets).buffer_unordered(clients);
            runtime.block_on(gets.try_for_each(|_| async { Ok(()) }))?;
            rates.push(("cold reads", "alone", rate(begun)));

            for dir in ["a", "b"] {
                std::fs::remove_dir_all(work.join(format!("{name}-{dir}")))?;
            }
            for (what, column, rate) in rates.into_iter().filter(|_| round > 0) {
                table.add(&[mib.into(), what.into()], "MiB/s", column, rate);
            }
        }
    }
    Ok(())
}

/// Does something with each of the names, in so many threads.
fn each(
    threads: u64,
    names: &[ChunkName],
    work: &(dyn Fn(&ChunkName) -> anyhow::Result<()> + Sync),
) -> anyhow::Result<()> {
    let share = names.len().div_ceil(threads as usize);
    std::thread::scope(|scope| {
        let running: Vec<_> = names
            .chunks(share)
            .map(|part| scope.spawn(move || part.iter().try_for_each(work)))
            .collect();
        running
            .into_iter()
            .try_for_each(|thread| thread.join().expect("a thread panicked"))
    })
}

/// Starts SeaweedFS with one bucket; returns the address of its S3 interface.
fn start_weed(args: &BucketsArgs, work: &std::path::Path) -> anyhow::Result<String> {
    let place = std::path::Path::new("target/python/bin/weed").to_owned();
    let given = args.weed.clone().unwrap_or(place);
    let weed = needed(Some(&given), "weed", "tools/setup --tests installs it")?;
    let config = work.join("weed.json");
    let identity = r#"{"identities": [{"name": "a", "actions": ["Admin", "Read", "Write", "List"],
        "credentials": [{"accessKey": "key", "secretKey": "secret"}]}]}"#;
    std::fs::write(&config, identity).context("the configuration of SeaweedFS")?;
    let dir = work.join("weed");
    std::fs::create_dir(&dir).context("a directory for SeaweedFS")?;
    let port = |i: u16| (FIRST_PORT + i).to_string();
    let s3 = port(6);
    let mut server = command(
        &weed,
        &[
            &"server",
            &"-ip=127.0.0.1",
            &"-ip.bind=127.0.0.1",
            &"-filer",
            &"-s3",
        ],
    );
    server
        .arg(format!("-dir={}", dir.display()))
        .arg(format!("-master.port={}", port(0)))
        .arg(format!("-master.port.grpc={}", port(1)))
        .arg(format!("-volume.port={}", port(2)))
        .arg(format!("-volume.port.grpc={}", port(3)))
        .arg(format!("-filer.port={}", port(4)))
        .arg(format!("-filer.port.grpc={}", port(5)))
        .arg(format!("-s3.port={s3}"))
        .arg(format!("-s3.port.grpc={}", port(7)))
        .arg(format!("-s3.config={}", config.display()))
        .args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=100"])
        .args(["-master.volumeSizeLimitMB=512", "-master.telemetry=false"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null());
    foreign(&mut server, "weed")?;
    let created = Instant::now();
    loop {
        let line = format!(
            "echo 's3.bucket.create -name chunks' | timeout 10 {} shell -master=127.0.0.1:{}.{} 2>&1 || true",
            weed.display(),
            port(0),
            port(1)
        );
        let said = output(&mut command("sh", &[&"-c", &line]))?;
        let up = std::net::TcpStream::connect(format!("127.0.0.1:{s3}")).is_ok();
        let is_there = ["created bucket", "already exists"];
        if is_there.iter().any(|text| said.contains(text)) && up {
            return Ok(format!("http://127.0.0.1:{s3}"));
        }
        ensure!(
            created.elapsed().as_secs() < 60,
            "SeaweedFS does not start: {said}"
        );
    }
}

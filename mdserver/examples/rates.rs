//! Measures how many creates and opens per second the service handles from several clients over a Unix socket:
//! `cargo run --release -p slabfs-mdserver --example rates -- [CLIENTS] [SECONDS]`.
//!
//! Everything in one process, so that one profile shows both ends.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use slabfs_mdserver::api::{Create, Ino, Kind, MdError, NewObject, ROOT, SpecChange, op};
use slabfs_mdserver::client::Md;
use slabfs_mdserver::{MdServer, RemoteMd, Service, ServiceOptions};
use slabfs_model::Tag;
use slabfs_objstore::Addr;
use slabfs_objstore::wire::Listener;

const BATCH: u64 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let clients: u64 = args.next().map_or(Ok(4), |text| text.parse())?;
    let seconds: f64 = args.next().map_or(Ok(3.0), |text| text.parse())?;
    let time = Duration::from_secs_f64(seconds);
    let directory = tempfile::tempdir()?;
    let service =
        Arc::new(Service::open(&directory.path().join("md"), ServiceOptions::default())?.0);
    let addr = Addr::Unix(directory.path().join("md.sock"));
    let server = MdServer::start(Arc::clone(&service), Listener::bind(&addr, None)?)?;
    let mut sessions = Vec::new();
    for client in 0..clients {
        let remote = RemoteMd::connect(addr.clone(), None, Duration::from_secs(30));
        let md = Md::attach(Arc::new(remote), "here", client as u32, false)?.0;
        let parent = md.call(new(ROOT, format!("c{client}"), Kind::Directory))?;
        sessions.push((md, parent.entry.attr.ino));
    }
    let made = create(&sessions, time)?;
    open(&sessions, &made, time)?;
    many(&sessions, time, "creates in batches", |parent, name| {
        object(parent, name, vec![])
    })?;
    let tags = |n: u64| {
        vec![
            ("step".to_owned(), Tag::int(n as i64)),
            ("run".to_owned(), Tag::text("x")),
        ]
    };
    many(&sessions, time, "the same with two tags", |parent, name| {
        object(parent, format!("t{name}"), tags(name))
    })?;
    for (md, _) in &sessions {
        md.call(op::Detach { clean: true })?;
    }
    server.shutdown();
    service.close()?;
    Ok(())
}

fn new(parent: Ino, name: String, kind: Kind) -> Create {
    Create {
        parent,
        name: name.into_bytes(),
        kind,
        mode: 0o755,
        uid: 1,
        gid: 1,
        rdev: 0,
        target: None,
        exclusive: true,
        open: false,
    }
}

fn object(parent: Ino, name: impl ToString, tags: Vec<(String, Tag)>) -> NewObject {
    NewObject {
        parent,
        name: name.to_string().into_bytes(),
        mode: 0o644,
        uid: 1,
        gid: 1,
        spec: SpecChange {
            dtype: "f4".parse().ok(),
            dims: Some([64, 64].into_iter().collect()),
            ..SpecChange::default()
        },
        tags,
    }
}

/// Runs `step` in one thread per client until the time is over; `step` returns how many operations it did.
fn measure<T: Send>(
    sessions: &[(Md, Ino)],
    time: Duration,
    what: &str,
    step: impl Fn(&Md, Ino, u64) -> Result<(u64, T), MdError> + Sync,
) -> Result<Vec<T>, Box<dyn Error>> {
    let (over, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let started = Instant::now();
    let results: Vec<Result<Vec<T>, MdError>> = std::thread::scope(|scope| {
        let threads: Vec<_> = sessions
            .iter()
            .map(|(md, parent)| {
                let (over, done, step) = (&over, &done, &step);
                scope.spawn(move || {
                    let mut all = Vec::new();
                    for at in 0.. {
                        if over.load(Ordering::Relaxed) || started.elapsed() >= time {
                            break;
                        }
                        let (count, result) = step(md, *parent, at)?;
                        done.fetch_add(count, Ordering::Relaxed);
                        all.push(result);
                    }
                    Ok(all)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err(MdError::Busy)))
            .collect()
    });
    let took = started.elapsed().as_secs_f64();
    println!(
        "{what:>24}: {:9.0} /s",
        done.load(Ordering::Relaxed) as f64 / took
    );
    let mut all = Vec::new();
    for result in results {
        all.extend(result?);
    }
    Ok(all)
}

fn create(sessions: &[(Md, Ino)], time: Duration) -> Result<Vec<Ino>, Box<dyn Error>> {
    measure(sessions, time, "creates", |md, parent, at| {
        let made = md.call(new(parent, format!("o{at}"), Kind::Object))?;
        Ok((1, made.entry.attr.ino))
    })
}

fn open(sessions: &[(Md, Ino)], made: &[Ino], time: Duration) -> Result<(), Box<dyn Error>> {
    let pick = |at: u64| made[(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % made.len()];
    measure(sessions, time, "opens", |md, _, at| {
        let ino = pick(at);
        md.call(op::Open { ino })?;
        if at % 64 == 63 {
            md.release((at - 63..=at).map(pick).collect())?;
        }
        Ok((1, ()))
    })?;
    Ok(())
}

fn many(
    sessions: &[(Md, Ino)],
    time: Duration,
    what: &str,
    object: impl Fn(Ino, u64) -> NewObject + Sync,
) -> Result<(), Box<dyn Error>> {
    measure(sessions, time, what, |md, parent, at| {
        let objects = (0..BATCH).map(|n| object(parent, at * BATCH + n));
        md.call(op::CreateMany {
            objects: objects.collect(),
        })?;
        Ok((BATCH, ()))
    })?;
    Ok(())
}

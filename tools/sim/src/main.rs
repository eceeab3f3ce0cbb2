//! `slabfs-sim`: what slabfs would do on clusters that are larger than those at hand.
//!
//! A discrete simulation of metadata services (with the shards of `docs/decisions/33-shards.md`), etcd, data
//! servers and mounts, with costs that were measured, or are assumed (`costs`). It shows which process limits which work at which
//! size, not how fast a certain cluster is: there are no failures, no caches that miss, and one network without contention.
//!
//! `docs/scale.md` has its tables and plots, which `slabfs-sim --page DIR` writes.

mod costs;
mod engine;
mod plot;
mod scenario;

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use scenario::{Outcome, Size, Work, heartbeats, play, start};

/// Numbers of mounts and shards in the tables.
const MOUNTS: [usize; 4] = [10, 100, 1000, 10_000];
const SHARDS: [usize; 3] = [1, 10, 100];

/// Simulates slabfs on large clusters
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  slabfs-sim
  slabfs-sim --page docs      # the plots of docs/scale.md")]
struct Args {
    /// Write the plots to this directory
    #[arg(long, value_name = "DIR")]
    page: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    println!(
        "| work | mounts | shards | step s | × bytes alone | messages | transactions | busiest |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut curves = Vec::new();
    for work in Work::value_variants() {
        for shards in SHARDS {
            let mut points = Vec::new();
            for mounts in MOUNTS {
                let outcome = play(*work, Size { mounts, shards });
                println!("{}", row(*work, Size { mounts, shards }, &outcome));
                points.push((mounts as f64, outcome.time));
            }
            curves.push((*work, shards, points));
        }
    }
    println!("\n| mounts | shards | heartbeats of all: busy | of 2 shards a mount: busy |");
    println!("|---|---|---|---|");
    for mounts in MOUNTS {
        for shards in SHARDS {
            let (all, some) = heartbeats(Size { mounts, shards }, 2);
            let [all, some] = [all, some].map(|part| format!("{:.1} %", 100.0 * part));
            println!("| {mounts} | {shards} | {all} | {some} |");
        }
    }
    println!(
        "\n| chunks | objects | shards | checkpoint of a shard, MB | a standby loads it in s |"
    );
    println!("|---|---|---|---|---|");
    for chunks in [1e6, 1e7, 1e8] {
        for shards in SHARDS {
            let objects = chunks / 100.0;
            let (bytes, time) = start(objects, chunks, shards);
            println!(
                "| {chunks:e} | {objects:e} | {shards} | {:.1} | {time:.1} |",
                bytes / 1e6
            );
        }
    }
    if let Some(dir) = args.page {
        plot::write(&dir, &curves)?;
    }
    Ok(())
}

fn row(work: Work, size: Size, outcome: &Outcome) -> String {
    let work = match work {
        Work::Files => "files",
        Work::Shared => "shared",
        Work::Read => "read",
    };
    format!(
        "| {work} | {} | {} | {:.3} | {:.2} | {} | {} | {}, {:.0} % |",
        size.mounts,
        size.shards,
        outcome.time,
        outcome.time / outcome.ideal,
        outcome.messages,
        outcome.transactions,
        outcome.busiest.0,
        100.0 * outcome.busiest.1
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where one process does nearly everything the result is known.
    #[test]
    fn limits_are_those_of_the_busiest_process() {
        // 8 MiB of 16 mounts by one data server.
        let one = play(
            Work::Shared,
            Size {
                mounts: 16,
                shards: 1,
            },
        );
        assert_eq!(one.busiest.0, "a data server");
        assert!((1.0..1.1).contains(&(one.time / one.ideal)), "{one:?}");
        // A request, its reply and a commit each, and some transactions.
        assert_eq!(one.messages, 3 * 16 + one.transactions);
        assert!(one.transactions <= 16);
    }

    #[test]
    fn shards_take_the_commits_from_the_names() {
        let [one, ten] = [1, 10].map(|shards| {
            play(
                Work::Files,
                Size {
                    mounts: 10_000,
                    shards,
                },
            )
        });
        // In the time of the simulation.
        assert!(ten.time < one.time);
        assert_eq!(one.busiest.0, "metadata");
        assert_eq!(ten.busiest.0, "etcd");
        let (all, some) = heartbeats(
            Size {
                mounts: 1000,
                shards: 100,
            },
            2,
        );
        assert!(some < all / 5.0);
        let (bytes, _) = start(1e6, 1e8, 100);
        assert!((4e7..6e7).contains(&bytes));
    }
}

//! A writer: it does random operations until one fails, and tracks the expected state.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;
use slabfs_tests::Random;
use slabfs_tests::file;
use slabfs_tests::tool::call;

use super::dice::{Step, TAGS};
use super::model::Model;
use super::seen::look;

/// A writer, its directory and its model.
pub(super) struct Worker {
    pub(super) mnt: PathBuf,
    pub(super) dir: PathBuf,
    pub(super) random: Random,
    pub(super) model: Model,
    /// The model if the operation that did not return had happened.
    other: Option<Model>,
    done: Vec<String>,
    /// Open files without names.
    pub(super) held: Vec<File>,
    pub(super) number: u64,
}

impl Worker {
    pub(super) fn new(mnt: PathBuf, number: u64, seed: u64) -> Worker {
        Worker {
            dir: mnt.join(format!("w{number}")),
            mnt,
            random: Random::new(seed),
            model: Model::default(),
            other: None,
            done: Vec::new(),
            held: Vec::new(),
            number,
        }
    }

    pub(super) fn prepare(&self) {
        std::fs::create_dir(&self.dir).expect("made");
        file::sync_dir(&self.dir).expect("synced");
    }

    /// Does operations until one fails, which may happen once `end` is set.
    pub(super) fn run(&mut self, done: &AtomicU64, end: &AtomicBool) {
        loop {
            let Some(step) = self.step() else { continue };
            let before = self.model.clone();
            let result = self.play(&step);
            self.done.push(format!("{step:?} {result:?}"));
            if let Err(error) = result {
                // The model now is the state as if the operation had happened.
                self.other = Some(std::mem::replace(&mut self.model, before));
                // A write may be stored although its sync failed.
                if let Step::Write {
                    name, row, byte, ..
                } = &step
                    && let Some(object) = self.model.object(name)
                {
                    object.write(*row, *byte);
                }
                // A grid is cut before its dims change: fill may be where data was to be removed.
                if let Step::Dims(name, rows) = &step
                    && let Some(object) = self.model.object(name)
                {
                    object.cut_short(*rows);
                }
                if !end.swap(true, Ordering::SeqCst) {
                    println!("writer {}: {step:?} failed: {error}", self.number);
                }
                return;
            }
            done.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Compares the directory with the model, and with the one in which the last operation happened; the
    /// matching one becomes the model.
    pub(super) fn compare(&mut self, round: u64) {
        self.held.clear();
        let seen = look(&self.dir);
        let as_it_was = seen.fits(&self.model);
        let happened = self.other.take().map(|other| (seen.fits(&other), other));
        match (as_it_was, happened) {
            (Ok(()), _) => {}
            (Err(_), Some((Ok(()), other))) => self.model = other,
            (Err(before), after) => {
                let from = self.done.len().saturating_sub(30);
                panic!(
                    "round {round}, writer {}: {before}\nif the last had happened: {:?}\nafter\n{}",
                    self.number,
                    after.map(|(why, _)| why),
                    self.done[from..].join("\n")
                )
            }
        }
        seen.settle(&mut self.model);
        self.search(round);
    }

    /// A search for each tag finds the objects that have it.
    fn search(&mut self, round: u64) {
        for tag in 0..TAGS {
            let tag = tag.to_string();
            let objects = self.model.objects.values();
            let wanted = objects
                .filter(|object| object.tags.contains_key(&tag))
                .count();
            let request = json!({
                "op": "find", "query": format!("has t{tag}"),
                "in": format!("w{}", self.number), "count": true,
            });
            let found = call(&self.mnt, &request).expect("a search");
            assert_eq!(
                found["count"], wanted,
                "round {round}, writer {}: objects with tag t{tag}",
                self.number
            );
        }
    }
}

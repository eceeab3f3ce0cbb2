//! Few names in one directory: created, removed, renamed over each other, and looked up.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;

use super::Desk;
use crate::history::{Answer, Call};

const NAMES: [&str; 3] = ["a", "b", "c"];

pub(super) fn work(desk: &mut Desk) {
    let dir = desk.task.object.clone();
    let object = desk.name();
    for _ in 0..desk.task.operations {
        let name = (*desk.random.pick(&NAMES)).to_owned();
        let path = dir.join(&name);
        match desk.random.range(0, 10) {
            0..3 => {
                desk.note(&object, Call::Create { name }, || {
                    let file = OpenOptions::new()
                        .write(true)
                        .create_new(true)
                        .open(&path)?;
                    Ok(Answer::File(file.metadata()?.ino()))
                });
            }
            3 => {
                desk.note(&object, Call::Unlink { name }, || {
                    std::fs::remove_file(&path)?;
                    Ok(Answer::Done)
                });
            }
            4..6 => {
                let others: Vec<&str> = NAMES.into_iter().filter(|&other| other != name).collect();
                let to = (*desk.random.pick(&others)).to_owned();
                let new = dir.join(&to);
                desk.note(&object, Call::Rename { from: name, to }, || {
                    std::fs::rename(&path, &new)?;
                    Ok(Answer::Done)
                });
            }
            6..8 => {
                desk.note(&object, Call::Look { name }, || {
                    Ok(Answer::File(std::fs::metadata(&path)?.ino()))
                });
            }
            _ => {
                desk.note(&object, Call::Look { name }, || {
                    Ok(Answer::File(File::open(&path)?.metadata()?.ino()))
                });
            }
        }
    }
}

//! A byte object that all append to, cut, look at and read.

use std::fs::{File, OpenOptions};
use std::io::{Result, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;

use super::Desk;
use crate::history::op::TORN;
use crate::history::{Answer, Call};

/// Room for more records than there ever are, in one request.
const ROOM: usize = 64 << 10;

pub(super) fn work(desk: &mut Desk) {
    let name = desk.name();
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).open(&desk.task.object);
    let file = file.expect("the object opens");
    // The kernel of one mount knows where an append of its own went; what others append it does not.
    let knows_places = desk.task.mounts == 1;
    for _ in 0..desk.task.operations {
        match desk.random.range(0, 12) {
            0..5 => {
                let value = desk.fresh();
                desk.note(&name, Call::Append { value }, || {
                    append(&file, value, knows_places)
                });
            }
            5 => {
                let records = desk.random.range(0, 5);
                desk.note(&name, Call::Resize { records }, || {
                    file.set_len(records * 8)?;
                    Ok(Answer::Done)
                });
            }
            6..9 => {
                desk.note(&name, Call::Size, || {
                    Ok(Answer::Number(file.metadata()?.len() / 8))
                });
            }
            _ => {
                desk.note(&name, Call::ReadAll, || read_all(&file));
            }
        }
    }
    desk.peers.barrier();
    desk.note(&name, Call::ReadAll, || read_all(&file));
}

fn append(mut file: &File, value: u64, knows_place: bool) -> Result<Answer> {
    let done = file.write(&value.to_le_bytes())?;
    assert_eq!(done, 8, "a record is appended wholly");
    if !knows_place {
        return Ok(Answer::Done);
    }
    let end = file.seek(SeekFrom::Current(0))?;
    Ok(Answer::Number(end / 8 - 1))
}

fn read_all(file: &File) -> Result<Answer> {
    let mut bytes = vec![0; ROOM];
    let len = file.read_at(&mut bytes, 0)?;
    let (records, rest) = bytes[..len].as_chunks::<8>();
    let mut values: Vec<u64> = records
        .iter()
        .map(|record| u64::from_le_bytes(*record))
        .collect();
    if !rest.is_empty() {
        values.push(TORN);
    }
    Ok(Answer::Values(values))
}

//! Logs of workers and files of complete histories: lines of JSON.
//!
//! A worker writes a line before an operation and one after it, both immediately, so that a killed or hanging
//! worker leaves its last operation.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Result, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::op::{Answer, Call, NEVER, Op};

/// A line of a worker's log.
#[derive(Debug, Serialize, Deserialize)]
enum Line {
    Began {
        start: u64,
        object: String,
        call: Call,
    },
    Ended {
        end: u64,
        answer: Answer,
    },
}

/// Nanoseconds of `CLOCK_MONOTONIC`: the same clock in all processes of a machine.
///
/// # Panics
/// Never: the clock is always there.
pub fn now() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).expect("the clock");
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

/// The log of one worker.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// A new one.
    ///
    /// # Errors
    /// Those of making a file.
    pub fn create(path: &Path) -> Result<Log> {
        Ok(Log(File::create(path)?))
    }

    /// Does an operation, and logs it.
    ///
    /// # Panics If the log cannot be written.
    pub fn note(&mut self, object: &str, call: Call, act: impl FnOnce() -> Answer) -> Answer {
        let object = object.to_owned();
        self.line(&Line::Began {
            start: now(),
            object,
            call,
        });
        let answer = act();
        self.line(&Line::Ended {
            end: now(),
            answer: answer.clone(),
        });
        answer
    }

    fn line(&mut self, line: &Line) {
        let mut text = serde_json::to_string(line).expect("a line");
        text.push('\n');
        self.0
            .write_all(text.as_bytes())
            .expect("the log is written");
    }
}

/// Reads the log of a worker. An unfinished last operation has no end; an incomplete last line is ignored.
///
/// # Errors Those of reading the file.
pub fn read(path: &Path, process: u32, mount: u32) -> Result<Vec<Op>> {
    let mut ops: Vec<Op> = Vec::new();
    for line in BufReader::new(File::open(path)?).lines() {
        match serde_json::from_str(&line?) {
            Ok(Line::Began {
                start,
                object,
                call,
            }) => ops.push(Op {
                process,
                mount,
                start,
                end: NEVER,
                object,
                call,
                answer: Answer::Unknown("no answer".to_owned()),
            }),
            Ok(Line::Ended { end, answer }) => {
                let op = ops.last_mut().expect("it began");
                (op.end, op.answer) = (end, answer);
            }
            Err(_) => break,
        }
    }
    Ok(ops)
}

/// Writes a complete history, an operation a line.
///
/// # Errors Those of writing the file.
pub fn keep(path: &Path, ops: &[Op]) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for op in ops {
        serde_json::to_writer(&mut file, op)?;
        file.write_all(b"\n")?;
    }
    file.flush()
}

/// Reads a complete history.
///
/// # Errors Those of reading the file, and invalid lines.
pub fn load(path: &Path) -> Result<Vec<Op>> {
    let lines = BufReader::new(File::open(path)?).lines();
    lines
        .map(|line| Ok(serde_json::from_str(&line?)?))
        .collect()
}

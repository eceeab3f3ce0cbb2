//! The journal reader, for the fuzz target `journal`.
//!
//! A fuzzer does not guess checksums, so its input is interpreted as a program that writes journal files: good frames,
//! frames with arbitrary payloads, garbage, damage, truncation. Undamaged files must be read as they were written; any
//! other files must be read without a panic, by the store too.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use super::disk::{Ground, journal_name};
use super::frame::{Draft, FRAME, HEADER, Header, Kind};
use super::replay::{From, replay};
use super::{Batch, KvOptions, LocalKv, Lsn, MetaKv};

const STORE: [u8; 16] = [1; 16];
const BOOT: [u8; 16] = [2; 16];

/// Reads journals in a directory of its own.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
}

/// The program's bytes.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn bytes(&mut self) -> &'a [u8] {
        let len = usize::from(self.byte().unwrap_or(0));
        let (bytes, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    fn number(&mut self) -> u64 {
        let mut number = [0; 8];
        number
            .iter_mut()
            .for_each(|byte| *byte = self.byte().unwrap_or(0));
        u64::from_le_bytes(number)
    }
}

/// The expected result of reading the files.
#[derive(Default)]
struct Written {
    rows: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    last: u64,
    synced: u64,
    /// The files contain damage or arbitrary bytes, so the result is unspecified.
    wild: bool,
}

impl Reader {
    /// Reads journals in `dir`, which is emptied again and again.
    pub fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Writes the files that `data` describes, and reads them.
    pub fn read(&mut self, data: &[u8]) {
        let mut input = Input(data);
        let flags = input.byte().unwrap_or(0);
        let mut written = Written::default();
        fs::remove_dir_all(&self.dir).ok();
        fs::create_dir_all(&self.dir).expect("a directory");
        let files = 1 + u64::from(flags & 3);
        for number in 1..=files {
            let bytes = file(number, number < files, &mut input, &mut written);
            fs::write(self.dir.join(journal_name(number)), bytes).expect("a file");
        }
        let ground = Ground {
            boot: (flags & 4 != 0).then_some(BOOT),
            ..Ground::real()
        };
        let from = From {
            after: Lsn(0),
            file: 1,
            store: (flags & 8 != 0).then_some(STORE),
            must_exist: true,
        };
        let read = replay(&self.dir, from, &ground);
        if !written.wild {
            let read = read.expect("read");
            assert!(read.losses.is_empty(), "{:?}", read.losses);
            assert_eq!(read.last.0, written.last);
            let rows = read.overlay.iter();
            let rows: BTreeMap<_, _> = rows.map(|(k, (_, v))| (k.clone(), v.clone())).collect();
            assert_eq!(rows, written.rows);
        }
        // Opening takes a hundred times as long as reading, so only some inputs are opened: a pseudo-random choice that
        // is the same each time.
        let sum = data
            .iter()
            .fold(0, |sum: u8, byte| sum.wrapping_mul(31).wrapping_add(*byte));
        if sum % 32 == 0 {
            self.open(&written, flags & 16 != 0, ground);
        }
    }

    /// Opens the store twice; both times it must have the same rows.
    fn open(&self, written: &Written, accept_loss: bool, ground: Ground) {
        let options = |accept_loss| KvOptions {
            accept_loss,
            cache_bytes: 1 << 20,
            ..KvOptions::default()
        };
        let all = |kv: &LocalKv| kv.scan(&[], &[0xff; 8], usize::MAX).expect("rows");
        let Ok((kv, _)) = LocalKv::open_on(&self.dir, options(accept_loss), ground.clone()) else {
            return;
        };
        let rows = all(&kv);
        if !written.wild {
            let there = written
                .rows
                .iter()
                .filter_map(|(k, v)| Some((k.clone(), v.clone()?)));
            let there: Vec<_> = there.filter(|(key, _)| key[..] < [0xff; 8][..]).collect();
            assert_eq!(rows, there);
        }
        drop(kv);
        let (kv, _) = LocalKv::open_on(&self.dir, options(false), ground).expect("open again");
        assert_eq!(all(&kv), rows);
    }
}

/// The bytes of file `number`.
fn file(number: u64, follows: bool, input: &mut Input<'_>, written: &mut Written) -> Vec<u8> {
    let header = Header {
        store: STORE,
        boot: BOOT,
        number,
    };
    let mut bytes = header.encode().to_vec();
    let ops = input.byte().unwrap_or(0) % 16;
    for _ in 0..ops {
        let Some(op) = input.byte() else { break };
        match op % 10 {
            0..=3 => record(&mut bytes, number, input, written),
            4 => {
                written.synced = written.last;
                mark(Draft::mark(Kind::Synced), &mut bytes, number, written);
            }
            5 => mark(Draft::mark(Kind::Close), &mut bytes, number, written),
            6 => {
                written.wild = true;
                bytes.extend_from_slice(input.bytes());
            }
            7 => {
                // A frame with arbitrary numbers and an arbitrary payload, with good checksums.
                written.wild = true;
                let kinds = [Kind::Record, Kind::Synced, Kind::Next, Kind::Close];
                let kind = kinds[usize::from(op / 10) % 4];
                let (lsn, synced) = (Lsn(input.number()), Lsn(input.number()));
                let payload = [&[0; FRAME], input.bytes()].concat();
                bytes.extend_from_slice(
                    Draft::with_payload(kind, payload).finish(lsn, synced, number),
                );
            }
            8 => {
                written.wild = true;
                let at = input.number() as usize % bytes.len();
                bytes[at] ^= input.byte().unwrap_or(0);
            }
            _ => {
                written.wild = true;
                bytes.truncate(input.number() as usize % (bytes.len() + 1));
                if bytes.len() < HEADER {
                    break;
                }
            }
        }
    }
    if follows {
        mark(Draft::next(number + 1), &mut bytes, number, written);
    }
    bytes
}

fn mark(mut draft: Draft, bytes: &mut Vec<u8>, number: u64, written: &Written) {
    let frame = draft.finish(Lsn(written.last), Lsn(written.synced), number);
    bytes.extend_from_slice(frame);
}

fn record(bytes: &mut Vec<u8>, number: u64, input: &mut Input<'_>, written: &mut Written) {
    let mut batch = Batch::new();
    for _ in 0..input.byte().unwrap_or(0) % 4 {
        let key = [b"k", input.bytes()].concat();
        let value = input.bytes().to_vec();
        batch.put(key.clone(), value.clone());
        written.rows.insert(key, Some(value));
    }
    // In a batch deletions come after puts.
    for _ in 0..input.byte().unwrap_or(0) % 2 {
        let key = [b"k", input.bytes()].concat();
        batch.delete(key.clone());
        written.rows.insert(key, None);
    }
    written.last += 1;
    let mut draft = Draft::record(&batch);
    let frame = draft.finish(Lsn(written.last), Lsn(written.synced), number);
    bytes.extend_from_slice(frame);
}

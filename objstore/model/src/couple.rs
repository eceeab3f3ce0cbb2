//! How an object is coupled: which programs exchange its data, and what its readers wait for.
//!
//! The text form is a list of `key=value`, separated by commas, as the attribute `user.slabfs.couple` has it:
//! `keep=memory,timeout=60s,matchers=2`. Keys that are left out have their defaults. `off` is an object that is not coupled.
//! docs/coupling.md explains what each of them does.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Most matchers of an object.
pub const MAX_MATCHERS: u8 = 64;
/// Longest text of a coupling, in bytes.
pub const MAX_COUPLE: usize = 1024;
/// Longest timeout.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 3600);
/// The timeout where none is given.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Where the data of a coupled object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Keep {
    /// In the memory of the mounts that wrote it.
    #[default]
    Memory,
    /// On the data servers; readers wait until all writers have closed the object.
    File,
}

/// When the stream of a coupled object ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum End {
    /// When its last writer closes it.
    #[default]
    Close,
    /// When `slabfs couple --end` says so.
    Never,
}

/// What happens when a writer is a queue's length ahead of the slowest reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Full {
    /// The writer waits.
    #[default]
    Block,
    /// The oldest step is discarded.
    Discard,
}

/// The settings of a coupled object.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Couple {
    /// Where the data is.
    pub keep: Keep,
    /// How long a read waits for its data, in milliseconds.
    pub timeout_ms: u64,
    /// Into how many parts of the slowest axis the work of matching is divided; 0 leaves that to the service.
    pub matchers: u8,
    /// When the stream ends.
    pub end: End,
    /// Whether PnetCDF's reads of a file's header are answered before the data behind it is there.
    pub early_header: bool,
    /// Chunks for which the memory of a mount has no room go to the data servers.
    pub spill: bool,
    /// Most steps, which are rows of the slowest axis, that are in memory; 0 for all.
    pub queue: u32,
    /// What happens to a step for which the queue has no room.
    pub full: Full,
    /// Of a container: which new objects are coupled, by their names ([`matches`]); empty for all.
    pub names: String,
    /// Of a container: which of those are not; empty for none.
    pub except: String,
}

impl Default for Couple {
    fn default() -> Couple {
        Couple {
            keep: Keep::default(),
            timeout_ms: TIMEOUT.as_millis() as u64,
            matchers: 0,
            end: End::default(),
            early_header: false,
            spill: false,
            queue: 0,
            full: Full::default(),
            names: String::new(),
            except: String::new(),
        }
    }
}

/// Whether an object is coupled, and how.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum Coupling {
    /// It is not.
    #[default]
    Off,
    /// It is.
    On(Couple),
}

impl Coupling {
    /// The settings of a coupled object.
    #[must_use]
    pub fn on(&self) -> Option<&Couple> {
        match self {
            Coupling::Off => None,
            Coupling::On(couple) => Some(couple),
        }
    }

    /// Whether its data stays in the memory of its writers' mounts.
    #[must_use]
    pub fn is_in_memory(&self) -> bool {
        self.on().is_some_and(|couple| couple.keep == Keep::Memory)
    }
}

impl Couple {
    /// Whether an object of this name is coupled in a container with these settings.
    #[must_use]
    pub fn takes(&self, name: &[u8]) -> bool {
        (self.names.is_empty() || matches(&self.names, name)) && !matches(&self.except, name)
    }

    /// The settings of an object that is created in a container with these.
    #[must_use]
    pub fn of_object(&self) -> Couple {
        Couple {
            names: String::new(),
            except: String::new(),
            ..self.clone()
        }
    }

    /// How long a read waits for its data.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }
}

/// A text that is not a coupling.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CoupleError {
    /// A word that is neither `off` nor `key=value`.
    #[error(
        "\"{0}\" is no setting of a coupling; write off, or a list such as keep=memory,timeout=60s,matchers=2"
    )]
    Word(String),
    /// A key that does not exist.
    #[error(
        "a coupling has no \"{0}\"; it has keep, timeout, matchers, end, header, spill, queue, full, names and except"
    )]
    Key(String),
    /// A key that is given twice.
    #[error("{0} is given twice")]
    Twice(String),
    /// A value that its key cannot have.
    #[error("{key}={value}: {want}")]
    Value {
        /// The key.
        key: String,
        /// The value as it was written.
        value: String,
        /// What it has to be.
        want: &'static str,
    },
    /// A text that is too long.
    #[error("a coupling has at most {MAX_COUPLE} bytes")]
    TooLong,
}

impl FromStr for Coupling {
    type Err = CoupleError;

    fn from_str(text: &str) -> Result<Coupling, CoupleError> {
        if text.len() > MAX_COUPLE {
            return Err(CoupleError::TooLong);
        }
        let text = text.trim();
        if text == "off" {
            return Ok(Coupling::Off);
        }
        let mut couple = Couple::default();
        let mut seen: Vec<&str> = Vec::new();
        for word in text.split(',') {
            let Some((key, value)) = word.split_once('=') else {
                return Err(CoupleError::Word(word.trim().to_owned()));
            };
            let (key, value) = (key.trim(), value.trim());
            if seen.contains(&key) {
                return Err(CoupleError::Twice(key.to_owned()));
            }
            seen.push(key);
            let wrong = |want| CoupleError::Value {
                key: key.to_owned(),
                value: value.to_owned(),
                want,
            };
            match (key, value) {
                ("keep", "memory") => couple.keep = Keep::Memory,
                ("keep", "file") => couple.keep = Keep::File,
                ("keep", _) => return Err(wrong("write memory or file")),
                ("timeout", _) => {
                    let is_possible = |time: &Duration| !time.is_zero() && *time <= MAX_TIMEOUT;
                    let time = duration(value).filter(is_possible);
                    couple.timeout_ms = time
                        .ok_or_else(|| {
                            wrong(
                                "write a time such as 500ms, 60s, 10m or 2h, more than 0 and at most 720h",
                            )
                        })?
                        .as_millis() as u64;
                }
                ("matchers", "auto") => couple.matchers = 0,
                ("matchers", _) => {
                    let number = value.parse().ok();
                    couple.matchers = number
                        .filter(|number| (1..=MAX_MATCHERS).contains(number))
                        .ok_or_else(|| wrong("write auto, or a number from 1 to 64"))?;
                }
                ("end", "close") => couple.end = End::Close,
                ("end", "never") => couple.end = End::Never,
                ("end", _) => return Err(wrong("write close or never")),
                ("header", "early") => couple.early_header = true,
                ("header", "wait") => couple.early_header = false,
                ("header", _) => return Err(wrong("write early or wait")),
                ("spill", "yes") => couple.spill = true,
                ("spill", "no") => couple.spill = false,
                ("spill", _) => return Err(wrong("write yes or no")),
                ("queue", "none") => couple.queue = 0,
                ("queue", _) => {
                    let steps = value.parse().ok().filter(|steps| *steps > 0);
                    couple.queue =
                        steps.ok_or_else(|| wrong("write a number of steps from 1 on, or none"))?;
                }
                ("full", "block") => couple.full = Full::Block,
                ("full", "discard") => couple.full = Full::Discard,
                ("full", _) => return Err(wrong("write block or discard")),
                ("names" | "except", _) if value.split('|').any(str::is_empty) => {
                    return Err(wrong("write patterns, separated by single |"));
                }
                ("names", _) => couple.names = value.to_owned(),
                ("except", _) => couple.except = value.to_owned(),
                _ => return Err(CoupleError::Key(key.to_owned())),
            }
        }
        Ok(Coupling::On(couple))
    }
}

/// A time such as `500ms`, `60s`, `10m`, `2h`; without a unit, seconds.
fn duration(text: &str) -> Option<Duration> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let unit: u64 = match &text[digits..] {
        "ms" => 1,
        "s" | "" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.checked_mul(unit).map(Duration::from_millis)
}

impl fmt::Display for Coupling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Coupling::Off => f.write_str("off"),
            Coupling::On(couple) => couple.fmt(f),
        }
    }
}

impl fmt::Display for Couple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keep = match self.keep {
            Keep::Memory => "memory",
            Keep::File => "file",
        };
        write!(f, "keep={keep}")?;
        match self.timeout_ms % 1000 {
            0 => write!(f, ",timeout={}s", self.timeout_ms / 1000)?,
            _ => write!(f, ",timeout={}ms", self.timeout_ms)?,
        }
        match self.matchers {
            0 => f.write_str(",matchers=auto")?,
            number => write!(f, ",matchers={number}")?,
        }
        match self.end {
            End::Close => Ok(()),
            End::Never => f.write_str(",end=never"),
        }?;
        if self.early_header {
            f.write_str(",header=early")?;
        }
        if self.spill {
            f.write_str(",spill=yes")?;
        }
        if self.queue > 0 {
            write!(f, ",queue={}", self.queue)?;
        }
        if self.full == Full::Discard {
            f.write_str(",full=discard")?;
        }
        for (key, patterns) in [("names", &self.names), ("except", &self.except)] {
            if !patterns.is_empty() {
                write!(f, ",{key}={patterns}")?;
            }
        }
        Ok(())
    }
}

/// Whether a name matches one of several patterns, separated by `|`. In a pattern `%` stands for digits, one at least, and `*` for
/// anything.
fn matches(patterns: &str, name: &[u8]) -> bool {
    !patterns.is_empty()
        && patterns
            .split('|')
            .any(|pattern| matches_one(pattern.as_bytes(), name))
}

fn matches_one(pattern: &[u8], name: &[u8]) -> bool {
    // The part of the pattern that comes next at each place: where a star was last, more of the name may belong to it.
    let (mut at, mut of) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        let step = match (pattern.get(of), name.get(at)) {
            (None, None) => return true,
            (Some(b'*'), _) => {
                star = Some((of + 1, at));
                of += 1;
                continue;
            }
            (Some(b'%'), Some(digit)) if digit.is_ascii_digit() => {
                let digits = name[at..].iter().take_while(|byte| byte.is_ascii_digit());
                Some(digits.count())
            }
            (Some(want), Some(byte)) if want == byte && *want != b'%' => Some(1),
            _ => None,
        };
        match (step, star) {
            (Some(bytes), _) => {
                at += bytes;
                of += 1;
            }
            (None, Some((next, from))) if from < name.len() => {
                star = Some((next, from + 1));
                (at, of) = (from + 1, next);
            }
            (None, _) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Couple {
        match text.parse() {
            Ok(Coupling::On(couple)) => couple,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn texts_come_back() {
        for text in [
            "off",
            "keep=memory,timeout=60s,matchers=auto",
            "keep=file,timeout=1500ms,matchers=7,end=never,header=early",
            "keep=memory,timeout=1s,matchers=auto,spill=yes,queue=3,full=discard",
            "keep=memory,timeout=1s,matchers=auto,names=out_%.nc|x*,except=out_0.nc",
        ] {
            assert_eq!(text.parse::<Coupling>().unwrap().to_string(), text);
        }
        assert_eq!(parsed("keep=memory"), Couple::default());
        assert_eq!(
            parsed(" timeout = 2h ").timeout(),
            Duration::from_secs(7200)
        );
        assert_eq!(parsed("timeout=3").timeout(), Duration::from_secs(3));
    }

    #[test]
    fn names_match_patterns() {
        for (patterns, name, wanted) in [
            ("out_%.nc", "out_0001.nc", true),
            ("out_%.nc", "out_.nc", false),
            ("out_%.nc", "out_1a.nc", false),
            ("*.nc", "a.b.nc", true),
            ("*.nc", "a.nc.tmp", false),
            ("a*b*c", "aXbYbc", true),
            ("a*b*c", "aXc", false),
            ("*", "", true),
            ("*%", "x12", true),
            ("x%y%", "x1y23", true),
            ("a|b*", "bc", true),
            ("", "a", false),
            ("a", "a", true),
            ("a", "aa", false),
        ] {
            assert_eq!(
                matches(patterns, name.as_bytes()),
                wanted,
                "{patterns} {name}"
            );
        }
        let couple = parsed("names=out_%.nc,except=out_0000.nc");
        assert!(couple.takes(b"out_1.nc") && !couple.takes(b"out_0000.nc") && !couple.takes(b"x"));
        assert!(parsed("keep=memory").takes(b"x") && couple.of_object().takes(b"x"));
    }

    #[test]
    fn wrong_texts_say_what_is_wrong() {
        for (text, why) in [
            ("", "no setting"),
            ("on", "no setting"),
            ("keep=disk", "memory or file"),
            ("timeout=1y", "such as 500ms"),
            ("timeout=99999999999999999999s", "such as 500ms"),
            ("timeout=721h", "at most 720h"),
            ("matchers=0", "from 1 to 64"),
            ("matchers=65", "from 1 to 64"),
            ("keep=memory,keep=file", "given twice"),
            ("speed=9", "no \"speed\""),
            ("timeout=0", "more than 0"),
            ("queue=0", "from 1 on"),
            ("full=yes", "block or discard"),
            ("spill=", "yes or no"),
            ("names=a||b", "patterns"),
            ("except=", "patterns"),
        ] {
            let error = text.parse::<Coupling>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert_eq!(
            "x".repeat(2000).parse::<Coupling>(),
            Err(CoupleError::TooLong)
        );
    }
}

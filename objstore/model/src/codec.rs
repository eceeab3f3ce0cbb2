//! The text of an object's codec: `none`, `lz4`, `deflate:6`, `shuffle+zstd:3`.
//!
//! The codecs themselves are in `slabfs-objstore`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The encoding of a chunk's bytes in storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Codec {
    /// Unencoded.
    None,
    /// LZ4 blocks.
    Lz4,
    /// zlib at this level, 1 to 9.
    Deflate(u32),
    /// Zstandard at this level, -7 to 22 without 0.
    Zstd(i32),
    /// The bytes of the elements transposed, then Zstandard.
    ShuffleZstd(i32),
    /// The bytes of the elements transposed, then zlib.
    ShuffleDeflate(u32),
    /// The bytes of the elements transposed, then LZ4 blocks.
    ShuffleLz4,
}

/// The errors of a codec's text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Not a codec.
    #[error(
        "\"{text}\" is not a codec; write none, lz4, deflate:1-9 or zstd:1-22, with shuffle+ before it where elements are longer than a byte, e.g. shuffle+zstd:3"
    )]
    Unknown {
        /// The text as it was written.
        text: String,
    },
    /// A level that the codec does not have.
    #[error("level \"{level}\" of codec {codec} is not possible; write an integer {range}")]
    Level {
        /// The codec's name.
        codec: &'static str,
        /// The level as it was written.
        level: String,
        /// The levels it has.
        range: &'static str,
    },
}

const DEFAULT_DEFLATE: u32 = 6;
const DEFAULT_ZSTD: i32 = 3;

impl Codec {
    /// Whether chunks are stored unencoded, so that parts of them can be read in place.
    pub fn is_none(self) -> bool {
        self == Codec::None
    }

    /// Whether the bytes of the elements are transposed first.
    pub fn shuffles(self) -> bool {
        matches!(
            self,
            Codec::ShuffleZstd(_) | Codec::ShuffleDeflate(_) | Codec::ShuffleLz4
        )
    }

    /// Its number in stored forms (`docs/formats/chunks.md`), and its level.
    pub fn number(self) -> (u8, i32) {
        match self {
            Codec::None => (0, 0),
            Codec::Lz4 => (1, 0),
            Codec::Deflate(level) => (2, level as i32),
            Codec::Zstd(level) => (3, level),
            Codec::ShuffleZstd(level) => (4, level),
            Codec::ShuffleDeflate(level) => (5, level as i32),
            Codec::ShuffleLz4 => (6, 0),
        }
    }

    /// The codec of a number and a level; `None` if there is none.
    pub fn of_number(number: u8, level: i32) -> Option<Codec> {
        let codec = match number {
            0 => Codec::None,
            1 => Codec::Lz4,
            2 => Codec::Deflate(level as u32),
            3 => Codec::Zstd(level),
            4 => Codec::ShuffleZstd(level),
            5 => Codec::ShuffleDeflate(level as u32),
            6 => Codec::ShuffleLz4,
            _ => return None,
        };
        codec.is_valid().then_some(codec)
    }

    /// Whether its level is one that [`Codec::from_str`] accepts; for values from the wire.
    pub fn is_valid(self) -> bool {
        match self {
            Codec::None | Codec::Lz4 | Codec::ShuffleLz4 => true,
            Codec::Deflate(level) | Codec::ShuffleDeflate(level) => (1..=9).contains(&level),
            Codec::Zstd(level) | Codec::ShuffleZstd(level) => {
                (-7..=22).contains(&level) && level != 0
            }
        }
    }
}

impl FromStr for Codec {
    type Err = CodecError;

    fn from_str(text: &str) -> Result<Codec, CodecError> {
        let text = text.trim();
        let unknown = || CodecError::Unknown {
            text: text.to_owned(),
        };
        let (shuffle, plain) = match text.strip_prefix("shuffle+") {
            Some(plain) => (true, plain),
            None => (false, text),
        };
        let (name, level) = match plain.split_once(':') {
            Some((name, level)) => (name, Some(level)),
            None => (plain, None),
        };
        let codec = match (name, level, shuffle) {
            ("none", None, false) => Codec::None,
            ("lz4", None, false) => Codec::Lz4,
            ("lz4", None, true) => Codec::ShuffleLz4,
            ("deflate", level, _) => {
                let level = read_level("deflate", level, "from 1 to 9")?.unwrap_or(DEFAULT_DEFLATE);
                if shuffle {
                    Codec::ShuffleDeflate(level)
                } else {
                    Codec::Deflate(level)
                }
            }
            ("zstd", level, _) => {
                let level = read_level("zstd", level, ZSTD_RANGE)?.unwrap_or(DEFAULT_ZSTD);
                if shuffle {
                    Codec::ShuffleZstd(level)
                } else {
                    Codec::Zstd(level)
                }
            }
            _ => return Err(unknown()),
        };
        if !codec.is_valid() {
            let (codec, range) = if name == "zstd" {
                ("zstd", ZSTD_RANGE)
            } else {
                ("deflate", "from 1 to 9")
            };
            let level = level.unwrap_or_default().to_owned();
            return Err(CodecError::Level {
                codec,
                level,
                range,
            });
        }
        Ok(codec)
    }
}

const ZSTD_RANGE: &str = "from 1 to 22 (or -7 to -1 for speed)";

fn read_level<T: FromStr>(
    codec: &'static str,
    level: Option<&str>,
    range: &'static str,
) -> Result<Option<T>, CodecError> {
    level
        .map(|text| {
            text.parse().map_err(|_| CodecError::Level {
                codec,
                level: text.to_owned(),
                range,
            })
        })
        .transpose()
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Codec::None => f.write_str("none"),
            Codec::Lz4 => f.write_str("lz4"),
            Codec::Deflate(level) => write!(f, "deflate:{level}"),
            Codec::Zstd(level) => write!(f, "zstd:{level}"),
            Codec::ShuffleZstd(level) => write!(f, "shuffle+zstd:{level}"),
            Codec::ShuffleDeflate(level) => write!(f, "shuffle+deflate:{level}"),
            Codec::ShuffleLz4 => f.write_str("shuffle+lz4"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_read_and_written() {
        for text in [
            "none",
            "lz4",
            "deflate:1",
            "deflate:9",
            "zstd:22",
            "zstd:-7",
            "shuffle+zstd:3",
            "shuffle+deflate:6",
            "shuffle+lz4",
        ] {
            assert_eq!(text.parse::<Codec>().unwrap().to_string(), text);
        }
        assert_eq!("zstd".parse(), Ok(Codec::Zstd(3)));
        assert_eq!("shuffle+deflate".parse(), Ok(Codec::ShuffleDeflate(6)));
    }

    #[test]
    fn errors_say_what_to_write() {
        for text in [
            "",
            "gzip",
            "shuffle",
            "shuffle+none",
            "lz4:3",
            "none:1",
            "zstd+shuffle",
        ] {
            let error = text.parse::<Codec>().unwrap_err().to_string();
            assert!(error.contains("shuffle+zstd:3"), "{error}");
        }
        for text in [
            "zstd:0",
            "zstd:23",
            "zstd:",
            "zstd:x",
            "deflate:0",
            "deflate:10",
            "deflate:-1",
        ] {
            let error = text.parse::<Codec>().unwrap_err().to_string();
            assert!(error.contains("from 1 to"), "{error}");
        }
        assert!(!Codec::Zstd(99).is_valid());
    }
}

//! The address of a service: a Unix socket or a TCP address.
//!
//! Written `unix:PATH` or `tcp:HOST:PORT`. This module resolves and opens nothing; `wire` does.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The address of a service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Addr {
    /// A Unix socket at this path.
    Unix(PathBuf),
    /// A TCP `HOST:PORT`; an IPv6 host stands in brackets.
    Tcp(String),
}

/// The reason why a text is not an address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddrError {
    /// Missing prefix `unix:` or `tcp:`.
    #[error("`{0}` is not an address: write unix:PATH or tcp:HOST:PORT")]
    Scheme(String),
    /// `unix:` without a usable path.
    #[error("`{0}`: {1}")]
    Path(String, &'static str),
    /// `tcp:` without a host or a port.
    #[error("`{0}`: {1}; write tcp:HOST:PORT, for example tcp:node7:7070 or tcp:[::1]:7070")]
    HostPort(String, &'static str),
}

/// The longest path a Unix socket address holds on Linux, without the closing zero.
const UNIX_PATH_MAX: usize = 107;

impl FromStr for Addr {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        if let Some(path) = text.strip_prefix("unix:") {
            let fail = |why| Err(AddrError::Path(text.to_owned(), why));
            return match path.len() {
                0 => fail("the path of the socket is missing"),
                n if n > UNIX_PATH_MAX => fail("a socket's path has at most 107 bytes"),
                _ => Ok(Self::Unix(PathBuf::from(path))),
            };
        }
        let Some(rest) = text.strip_prefix("tcp:") else {
            return Err(AddrError::Scheme(text.to_owned()));
        };
        let fail = |why| Err(AddrError::HostPort(text.to_owned(), why));
        let Some((host, port)) = rest.rsplit_once(':') else {
            return fail("the port is missing");
        };
        if host.is_empty() {
            return fail("the host is missing");
        }
        let bracketed = host.starts_with('[') && host.ends_with(']');
        if host.contains(':') && !bracketed {
            return fail("an IPv6 host stands in brackets");
        }
        if port.parse::<u16>().is_err() {
            return fail("the port is not a number from 0 to 65535");
        }
        Ok(Self::Tcp(rest.to_owned()))
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp:{host}"),
        }
    }
}

/// The addresses of a service that runs on several machines and of which one process at a time answers; of others
/// one. Written with commas between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addrs(Vec<Addr>);

impl Addrs {
    /// The addresses, in the order in which they are tried.
    #[must_use]
    pub fn all(&self) -> &[Addr] {
        &self.0
    }

    /// The one that is tried first.
    #[must_use]
    pub fn first(&self) -> &Addr {
        &self.0[0]
    }

    /// The one that is tried after `addr`.
    #[must_use]
    pub fn after(&self, addr: &Addr) -> &Addr {
        let at = self.0.iter().position(|one| one == addr).unwrap_or(0);
        &self.0[(at + 1) % self.0.len()]
    }
}

impl From<Addr> for Addrs {
    fn from(addr: Addr) -> Addrs {
        Addrs(vec![addr])
    }
}

impl FromStr for Addrs {
    type Err = AddrError;

    fn from_str(text: &str) -> Result<Self, AddrError> {
        let all: Result<Vec<Addr>, AddrError> = text.split(',').map(str::parse).collect();
        all.map(Addrs)
    }
}

impl fmt::Display for Addrs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, addr) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{addr}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_addresses_are_tried_in_order() {
        let text = "unix:/a,tcp:b:1,tcp:c:2";
        let addrs: Addrs = text.parse().expect("addresses");
        assert_eq!(addrs.to_string(), text);
        let mut at = addrs.first().clone();
        let tried = (0..4).map(|_| {
            at = addrs.after(&at).clone();
            at.to_string()
        });
        let tried: Vec<String> = tried.collect();
        assert_eq!(tried, ["tcp:b:1", "tcp:c:2", "unix:/a", "tcp:b:1"]);
        for text in ["", "unix:/a,", ",", "unix:/a,b"] {
            assert!(text.parse::<Addrs>().is_err(), "{text}");
        }
    }

    #[test]
    fn good_addresses_read_back() {
        for text in [
            "unix:/run/slabfs.sock",
            "tcp:node7:7070",
            "tcp:[::1]:0",
            "tcp:10.0.0.1:65535",
        ] {
            assert_eq!(text.parse::<Addr>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn bad_addresses_say_why() {
        for (text, why) in [
            ("", "write unix:PATH"),
            ("node7:7070", "write unix:PATH"),
            ("unix:", "missing"),
            ("tcp:node7", "port is missing"),
            ("tcp::7070", "host is missing"),
            ("tcp:node7:http", "not a number"),
            ("tcp:node7:70000", "not a number"),
            ("tcp:::1:7070", "brackets"),
        ] {
            let error = text.parse::<Addr>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(
            format!("unix:/{}", "x".repeat(200))
                .parse::<Addr>()
                .is_err()
        );
    }
}

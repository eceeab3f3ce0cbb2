//! [`EtcdAddr`]: where the log is, as `etcd://HOST:PORT,HOST:PORT/PREFIX`.

use std::fmt;
use std::str::FromStr;

/// The port of etcd for clients.
const PORT: &str = "2379";
/// The longest prefix, in bytes.
const MAX_PREFIX: usize = 200;

/// The members of an etcd cluster, and the prefix of the keys of one filesystem in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdAddr {
    /// `http://HOST:PORT`, or `https://…`.
    pub(crate) endpoints: Vec<String>,
    /// Without slashes at its ends.
    pub(crate) prefix: String,
    tls: bool,
}

impl EtcdAddr {
    /// The same cluster, with the keys of a part of the filesystem.
    #[must_use]
    pub fn below(&self, part: &str) -> EtcdAddr {
        EtcdAddr {
            prefix: format!("{}/{part}", self.prefix),
            ..self.clone()
        }
    }

    /// The prefix of all keys, with a slash at both ends.
    pub(crate) fn root(&self) -> String {
        format!("/{}/", self.prefix)
    }

    /// Whether connections use TLS.
    pub(crate) fn is_tls(&self) -> bool {
        self.tls
    }
}

impl FromStr for EtcdAddr {
    type Err = String;

    fn from_str(text: &str) -> Result<EtcdAddr, String> {
        let wrong = |what: &str| {
            format!(
                "{text:?} {what}; write etcd://HOST:PORT,HOST:PORT/PREFIX, or etcds://… for TLS"
            )
        };
        let (scheme, rest) = match (text.strip_prefix("etcd://"), text.strip_prefix("etcds://")) {
            (Some(rest), _) => ("http", rest),
            (_, Some(rest)) => ("https", rest),
            _ => return Err(wrong("does not begin with etcd://")),
        };
        let (hosts, prefix) = rest
            .split_once('/')
            .ok_or_else(|| wrong("names no prefix for the keys of this filesystem"))?;
        let prefix = prefix.trim_matches('/');
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if prefix.is_empty() || prefix.len() > MAX_PREFIX || !prefix.chars().all(allowed) {
            return Err(wrong(
                "names no usable prefix (letters, digits, '-', '_', '.' and '/', at most 200)",
            ));
        }
        let endpoints = hosts.split(',').map(|host| {
            let bracket = host.rfind(']').map_or(0, |at| at + 1);
            let (name, port) = host[bracket..].rfind(':').map_or((host, PORT), |at| {
                (&host[..bracket + at], &host[bracket + at + 1..])
            });
            let good = !name.is_empty()
                && !name.contains(['@', '?', '#', ' '])
                && port.parse::<u16>().is_ok_and(|port| port > 0);
            good.then(|| format!("{scheme}://{name}:{port}"))
        });
        let endpoints: Option<Vec<String>> = endpoints.collect();
        Ok(EtcdAddr {
            endpoints: endpoints.ok_or_else(|| wrong("has a host that is none"))?,
            prefix: prefix.to_owned(),
            tls: scheme == "https",
        })
    }
}

impl fmt::Display for EtcdAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hosts = self.endpoints.iter().map(|endpoint| {
            let (_, host) = endpoint.split_once("://").unwrap_or(("", endpoint));
            host
        });
        let hosts: Vec<&str> = hosts.collect();
        let scheme = if self.tls { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}/{}", hosts.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for (text, shown) in [
            ("etcd://a:1,b/x", "etcd://a:1,b:2379/x"),
            ("etcds://[::1]:2379/x/y/", "etcds://[::1]:2379/x/y"),
            ("etcd://[::1]/x", "etcd://[::1]:2379/x"),
        ] {
            let addr: EtcdAddr = text.parse().expect(text);
            assert_eq!(addr.to_string(), shown);
            assert_eq!(shown.parse::<EtcdAddr>().as_ref(), Ok(&addr));
        }
        for text in [
            "http://a/x",
            "etcd://a",
            "etcd:///x",
            "etcd://a/",
            "etcd://a:0/x",
            "etcd://a:b/x",
            "etcd://a,/x",
            "etcd://u@a/x",
            "etcd://a/x y",
            "etcd://a/x?y",
        ] {
            assert!(text.parse::<EtcdAddr>().is_err(), "{text}");
        }
    }
}

//! [`S3Addr`]: a bucket and a prefix in it, as `s3://BUCKET/PREFIX?endpoint=URL&region=NAME`.

use std::fmt;
use std::str::FromStr;

use url::Url;

/// Where chunks are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Addr {
    pub(crate) bucket: String,
    /// Without slashes at its ends; may be empty.
    pub(crate) prefix: String,
    /// Another service than that of AWS.
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) durability: Durability,
}

/// What a sync waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The bytes are in the bucket.
    #[default]
    Bucket,
    /// They are on the local disk; they are lost with the machine, as long as they are not in the bucket.
    Local,
}

impl S3Addr {
    /// What a sync waits for.
    #[must_use]
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// A part of the prefix.
    #[must_use]
    pub fn below(&self, part: &str) -> S3Addr {
        let prefix = match self.prefix.is_empty() {
            true => part.to_owned(),
            false => format!("{}/{part}", self.prefix),
        };
        S3Addr {
            prefix,
            ..self.clone()
        }
    }
}

impl FromStr for S3Addr {
    type Err = String;

    fn from_str(text: &str) -> Result<S3Addr, String> {
        let wrong = |what: &str| {
            format!(
                "{text:?} {what}; write s3://BUCKET/PREFIX, and behind it ?endpoint=http://HOST:PORT if it is not AWS"
            )
        };
        let url = Url::parse(text).map_err(|error| wrong(&format!("is no address ({error})")))?;
        if url.scheme() != "s3" {
            return Err(wrong("does not begin with s3://"));
        }
        let bucket = url.host_str().unwrap_or_default();
        if bucket.len() < 3 {
            return Err(wrong("names no bucket of three letters or more"));
        }
        if url.password().is_some() || !url.username().is_empty() {
            return Err(wrong(
                "has credentials; give them as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            ));
        }
        let (mut endpoint, mut region) = (None, None);
        let mut durability = Durability::Bucket;
        for (key, value) in url.query_pairs() {
            match &*key {
                "endpoint" if Url::parse(&value).is_ok_and(|url| url.has_host()) => {
                    endpoint = Some(value.trim_end_matches('/').to_owned());
                }
                "region" if !value.is_empty() => region = Some(value.into_owned()),
                "durability" if value == "local" => durability = Durability::Local,
                "durability" if value == "bucket" => durability = Durability::Bucket,
                _ => {
                    return Err(wrong(&format!(
                        "has the setting {key}={value}; known are endpoint=URL, region=NAME, and durability=bucket or local"
                    )));
                }
            }
        }
        Ok(S3Addr {
            bucket: bucket.to_owned(),
            prefix: url.path().trim_matches('/').to_owned(),
            endpoint,
            region,
            durability,
        })
    }
}

impl fmt::Display for S3Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}", self.bucket)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        let mut sign = '?';
        let durability = match self.durability {
            Durability::Bucket => None,
            Durability::Local => Some("local".to_owned()),
        };
        for (key, value) in [
            ("endpoint", &self.endpoint),
            ("region", &self.region),
            ("durability", &durability),
        ] {
            if let Some(value) = value {
                write!(f, "{sign}{key}={value}")?;
                sign = '&';
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in [
            "s3://chunks",
            "s3://chunks/a/b",
            "s3://chunks/a?endpoint=http://127.0.0.1:8333",
            "s3://chunks/a?endpoint=https://s3.example.org&region=eu",
            "s3://chunks/a?durability=local",
        ] {
            let addr: S3Addr = text.parse().expect(text);
            assert_eq!(addr.to_string(), text);
        }
        for text in [
            "chunks",
            "http://chunks/a",
            "s3://ab/c",
            "s3://u:p@chunks/a",
            "s3://chunks?x=y",
            "s3://chunks?durability=none",
            "s3://chunks?endpoint=nowhere",
        ] {
            assert!(text.parse::<S3Addr>().is_err(), "{text}");
        }
    }
}

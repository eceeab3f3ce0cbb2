//! [`Bucket`]: requests to an object store, from threads that may block.
//!
//! Each request is repeated by the client of the object store, with growing pauses, until [`DEADLINE`]: errors of the
//! connection, 500, 503 (slow down) and 429. Others (403, a missing bucket) fail at once.

use std::io::{Read, Write};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, RetryConfig,
};
use slabfs_objstore::StoreError;
use tokio::runtime::Runtime;

use crate::address::S3Addr;

/// How long a request may take, all its attempts together.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(10);
/// Requests of one call that run at the same time.
const AT_ONCE: usize = 16;
/// Bytes of an object of [`Bucket::store_parts`].
const PART: u64 = 8 << 20;
/// Parts that are in memory at the same time.
const PARTS_AT_ONCE: usize = 4;

/// Requests and bytes so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BucketCounts {
    /// Objects created.
    pub puts: u64,
    /// Bytes of them.
    pub put_bytes: u64,
    /// Reads.
    pub gets: u64,
    /// Bytes of them.
    pub got_bytes: u64,
    /// Lists.
    pub lists: u64,
    /// Objects deleted.
    pub deletes: u64,
    /// Requests that failed, all their attempts.
    pub failed: u64,
}

#[derive(Debug, Default)]
struct Counters {
    puts: AtomicU64,
    put_bytes: AtomicU64,
    gets: AtomicU64,
    got_bytes: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    failed: AtomicU64,
}

/// The result of creating an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Made {
    Created,
    /// There is an object of this key.
    Exists,
}

/// A bucket, and the prefix of all keys in it.
pub struct Bucket {
    runtime: Runtime,
    store: Arc<dyn ObjectStore>,
    prefix: String,
    shown: String,
    counters: Counters,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Bucket").field(&self.shown).finish()
    }
}

impl Bucket {
    /// The bucket at `addr`, with the credentials of the usual variables, files and instance roles.
    ///
    /// # Errors
    /// `Invalid` for settings that contradict each other.
    pub fn open(addr: &S3Addr) -> Result<Bucket, StoreError> {
        Bucket::open_with(addr, &[])
    }

    /// The same, with these variables in place of those of the environment.
    ///
    /// # Errors
    /// As [`Bucket::open`].
    pub fn open_with(addr: &S3Addr, vars: &[(&str, &str)]) -> Result<Bucket, StoreError> {
        // An error says that another provider is there already.
        let _other = rustls::crypto::ring::default_provider().install_default();
        let retry = RetryConfig {
            retry_timeout: DEADLINE,
            // The time is what ends the attempts.
            max_retries: usize::MAX,
            ..RetryConfig::default()
        };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(&addr.bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_retry(retry);
        let mut options = ClientOptions::new().with_timeout(ATTEMPT);
        for (name, value) in vars {
            if let Ok(key) = name.to_lowercase().parse::<AmazonS3ConfigKey>() {
                builder = builder.with_config(key, *value);
            }
        }
        if let Some(endpoint) = &addr.endpoint {
            builder = builder.with_endpoint(endpoint);
            options = options.with_allow_http(endpoint.starts_with("http://"));
        }
        if let Some(region) = &addr.region {
            builder = builder.with_region(region);
        }
        let store = builder.with_client_options(options).build();
        let store = store
            .map_err(|error| StoreError::Invalid(format!("{addr} cannot be used: {error}")))?;
        Bucket::over(Arc::new(store), &addr.prefix, addr.to_string())
    }

    /// Its address, for messages.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Another implementation of the same interface, shown as `shown` in messages.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn over(
        store: Arc<dyn ObjectStore>,
        prefix: &str,
        shown: String,
    ) -> Result<Bucket, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("s3")
            .enable_all()
            .build();
        let runtime = runtime.map_err(|error| StoreError::Io {
            what: "starting threads".to_owned(),
            detail: error.to_string(),
            errno: error.raw_os_error(),
        })?;
        Ok(Bucket {
            runtime,
            store,
            prefix: prefix.to_owned(),
            shown,
            counters: Counters::default(),
        })
    }

    /// Requests and bytes so far.
    #[must_use]
    pub fn counts(&self) -> BucketCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let all = &self.counters;
        BucketCounts {
            puts: of(&all.puts),
            put_bytes: of(&all.put_bytes),
            gets: of(&all.gets),
            got_bytes: of(&all.got_bytes),
            lists: of(&all.lists),
            deletes: of(&all.deletes),
            failed: of(&all.failed),
        }
    }

    fn path(&self, key: &str) -> Path {
        match self.prefix.is_empty() {
            true => Path::from(key),
            false => Path::from(format!("{}/{key}", self.prefix)),
        }
    }

    fn failed(&self, what: &str, key: &str, error: &Error) -> StoreError {
        self.counters.failed.fetch_add(1, Ordering::Relaxed);
        StoreError::Io {
            what: format!("{what} {key} in {}", self.shown),
            detail: error.to_string(),
            errno: None,
        }
    }

    /// Creates an object, if there is none of this key.
    pub(crate) fn create(&self, key: &str, bytes: Bytes) -> Result<Made, StoreError> {
        self.runtime.block_on(self.creating(key, bytes))
    }

    async fn creating(&self, key: &str, bytes: Bytes) -> Result<Made, StoreError> {
        let len = bytes.len() as u64;
        let options = PutOptions::from(PutMode::Create);
        let payload = PutPayload::from_bytes(bytes);
        let made = self.store.put_opts(&self.path(key), payload, options).await;
        self.counters.puts.fetch_add(1, Ordering::Relaxed);
        match made {
            Ok(_) => {
                self.counters.put_bytes.fetch_add(len, Ordering::Relaxed);
                Ok(Made::Created)
            }
            Err(Error::AlreadyExists { .. }) => Ok(Made::Exists),
            Err(error) => Err(self.failed("storing", key, &error)),
        }
    }

    /// Creates an empty object, if it is not there: fails if nothing can be written.
    ///
    /// # Errors
    /// Those of the object store.
    pub fn probe(&self, key: &str) -> Result<(), StoreError> {
        self.create(key, Bytes::new()).map(drop)
    }

    /// Creates objects, several at the same time. Those that exist are left as they are.
    pub(crate) fn create_all(&self, objects: Vec<(String, Bytes)>) -> Result<(), StoreError> {
        let creating = objects
            .into_iter()
            .map(|(key, bytes)| async move { self.creating(&key, bytes).await });
        let all = futures_util::stream::iter(creating)
            .buffer_unordered(AT_ONCE)
            .try_for_each(|_| async { Ok(()) });
        self.runtime.block_on(all)
    }

    /// Reads an object, or a part of it.
    pub(crate) fn get(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, StoreError> {
        self.runtime.block_on(self.getting(key, range))
    }

    /// Reads parts of objects, several at the same time; in the order of the requests.
    pub(crate) fn get_all(
        &self,
        parts: Vec<(String, Range<u64>)>,
    ) -> Result<Vec<Bytes>, StoreError> {
        let getting = parts
            .into_iter()
            .map(|(key, range)| async move { self.getting(&key, Some(range)).await });
        let all = futures_util::stream::iter(getting)
            .buffered(AT_ONCE)
            .try_collect();
        self.runtime.block_on(all)
    }

    async fn getting(&self, key: &str, range: Option<Range<u64>>) -> Result<Bytes, StoreError> {
        let path = self.path(key);
        let got = async {
            match range {
                Some(range) => self.store.get_range(&path, range).await,
                None => self.store.get(&path).await?.bytes().await,
            }
        };
        let got = got.await;
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        let bytes = got.map_err(|error| self.failed("reading", key, &error))?;
        let len = bytes.len() as u64;
        self.counters.got_bytes.fetch_add(len, Ordering::Relaxed);
        Ok(bytes)
    }

    /// The first bytes of an object, if it exists.
    pub(crate) fn find(&self, key: &str, len: u64) -> Result<Option<Bytes>, StoreError> {
        let path = self.path(key);
        self.counters.gets.fetch_add(1, Ordering::Relaxed);
        match self.runtime.block_on(self.store.get_range(&path, 0..len)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("looking for", key, &error)),
        }
    }

    /// The keys below a folder, in order, without the folder.
    ///
    /// # Errors
    /// Those of the object store.
    pub fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let sized = self.list_sizes(folder)?;
        Ok(sized.into_iter().map(|(key, _)| key).collect())
    }

    /// The same, with the size of each object in bytes.
    ///
    /// # Errors
    /// As there.
    pub fn list_sizes(&self, folder: &str) -> Result<Vec<(String, u64)>, StoreError> {
        let path = self.path(folder);
        let found: Result<Vec<_>, Error> = self
            .runtime
            .block_on(self.store.list(Some(&path)).try_collect());
        self.counters.lists.fetch_add(1, Ordering::Relaxed);
        let found = found.map_err(|error| self.failed("listing", folder, &error))?;
        let below = |meta: &object_store::ObjectMeta| {
            let parts = meta.location.prefix_match(&path)?;
            let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
            Some((parts.join("/"), meta.size))
        };
        let mut keys: Vec<(String, u64)> = found.iter().filter_map(below).collect();
        keys.sort_unstable();
        Ok(keys)
    }

    /// Stores what a reader has as objects of 8 MiB in a folder. Those that are there already are left.
    ///
    /// (Objects of their own and not parts of one upload: an upload that is broken off would take space that no list shows.)
    ///
    /// # Errors
    /// Those of the object store and of the reader.
    pub fn store_parts(&self, folder: &str, from: &mut dyn Read) -> Result<u64, StoreError> {
        let (mut stored, mut ended) = (0, false);
        for round in 0.. {
            let mut parts = Vec::new();
            while parts.len() < PARTS_AT_ONCE && !ended {
                let mut part = Vec::new();
                let read = from.take(PART).read_to_end(&mut part);
                read.map_err(|error| StoreError::Io {
                    what: format!("reading what is to be stored as {folder}"),
                    detail: error.to_string(),
                    errno: error.raw_os_error(),
                })?;
                ended = (part.len() as u64) < PART;
                stored += part.len() as u64;
                let number = round * PARTS_AT_ONCE + parts.len();
                if !part.is_empty() {
                    parts.push((part_key(folder, number as u64), Bytes::from(part)));
                }
            }
            self.create_all(parts)?;
            if ended {
                break;
            }
        }
        Ok(stored)
    }

    /// Writes what is in a folder as parts, so many bytes in total.
    ///
    /// # Errors
    /// Those of the object store and of the writer; a part that is missing or has another length.
    pub fn fetch_parts(
        &self,
        folder: &str,
        bytes: u64,
        to: &mut dyn Write,
    ) -> Result<(), StoreError> {
        let parts = (0..bytes.div_ceil(PART)).map(|number| async move {
            let key = part_key(folder, number);
            let part = self.getting(&key, None).await?;
            let wanted = PART.min(bytes - number * PART);
            match part.len() as u64 == wanted {
                true => Ok(part),
                false => Err(StoreError::Io {
                    what: format!("reading {key} in {}", self.shown),
                    detail: format!("it has {} bytes and not {wanted}", part.len()),
                    errno: None,
                }),
            }
        });
        let mut parts = futures_util::stream::iter(parts).buffered(PARTS_AT_ONCE);
        while let Some(part) = self.runtime.block_on(parts.next()) {
            to.write_all(&part?).map_err(|error| StoreError::Io {
                what: format!("writing what {folder} has"),
                detail: error.to_string(),
                errno: error.raw_os_error(),
            })?;
        }
        Ok(())
    }

    /// Deletes objects; missing ones are no error.
    ///
    /// # Errors
    /// Those of the object store.
    pub fn delete_all(&self, keys: &[String]) -> Result<(), StoreError> {
        let deleting = keys.iter().map(|key| async move {
            match self.store.delete(&self.path(key)).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.failed("deleting", key, &error)),
            }
        });
        let all = futures_util::stream::iter(deleting)
            .buffer_unordered(AT_ONCE)
            .try_for_each(|()| async { Ok(()) });
        self.runtime.block_on(all)?;
        let many = keys.len() as u64;
        self.counters.deletes.fetch_add(many, Ordering::Relaxed);
        Ok(())
    }
}

fn part_key(folder: &str, number: u64) -> String {
    format!("{folder}/{number:08}")
}

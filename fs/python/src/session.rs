//! Sessions: names, attributes, tags and searches.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use slabfs_fs::session::{
    self, Access, ConnectOptions, Consistency, Error, Kind, ObjectSpec, Query, RenameFlags, Stat,
    Tag, TagEdit, TagKind,
};

use crate::error::{call, call_to_end, invalid};
use crate::object::Object;
use crate::own::Own;

/// A tag: key, type, and the bytes of its attribute.
type Tagged<'py> = (String, &'static str, Bound<'py, PyBytes>);
/// A tag as given: key, type, bytes.
type Given = (String, String, Vec<u8>);

/// A session of a filesystem.
#[pyclass(module = "slabfs._native", frozen)]
pub(crate) struct Session {
    inner: Own<session::Session>,
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Directory => "container",
        Kind::Object => "object",
        _ => "other",
    }
}

/// Attributes as a dictionary.
pub(crate) fn described<'py>(py: Python<'py>, stat: &Stat) -> PyResult<Bound<'py, PyAny>> {
    let all = PyDict::new(py);
    all.set_item("kind", kind(stat.kind))?;
    all.set_item("ino", stat.ino)?;
    all.set_item("mode", stat.mode)?;
    all.set_item("uid", stat.uid)?;
    all.set_item("gid", stat.gid)?;
    all.set_item("size", stat.size)?;
    let mtime = stat.mtime.duration_since(UNIX_EPOCH).unwrap_or_default();
    all.set_item("mtime", mtime.as_secs_f64())?;
    all.set_item("version", stat.version)?;
    if let Some(array) = &stat.array {
        all.set_item("dtype", array.dtype.numpy_name())?;
        all.set_item("dims", array.dims.to_vec())?;
        let limits: Vec<Option<u64>> = array
            .max_dims
            .iter()
            .map(|limit| match limit {
                session::MaxDim::Unlimited => None,
                session::MaxDim::Fixed(len) => Some(*len),
            })
            .collect();
        all.set_item("max_dims", limits)?;
        all.set_item("fill", &array.fill)?;
        all.set_item("layout", array.layout.to_string())?;
        all.set_item("codec", array.codec.to_string())?;
        all.set_item("placement", array.placement.to_string())?;
        all.set_item("declared", array.declared)?;
    }
    Ok(all.into_any())
}

fn tag(py: Python<'_>, kind: &str, bytes: &[u8]) -> PyResult<Tag> {
    let parsed = kind
        .parse::<TagKind>()
        .and_then(|kind| Tag::from_attribute(kind, bytes));
    parsed.map_err(|error| invalid(py, error.to_string()))
}

fn tagged(py: Python<'_>, tags: Vec<(String, Tag)>) -> Vec<Tagged<'_>> {
    let tags = tags.into_iter();
    tags.map(|(key, tag)| (key, tag.kind.name(), PyBytes::new(py, &tag.bytes)))
        .collect()
}

impl Session {
    fn get(&self, py: Python<'_>) -> PyResult<session::Session> {
        self.inner.with(py, Clone::clone)
    }
}

#[pymethods]
impl Session {
    /// Attaches to a running filesystem.
    #[staticmethod]
    #[pyo3(signature = (place, key_file, io_timeout, consistency, read_only, cache, dirty_limit))]
    #[allow(clippy::too_many_arguments)] // They are given by name.
    fn connect(
        py: Python<'_>,
        place: PathBuf,
        key_file: Option<PathBuf>,
        io_timeout: Option<f64>,
        consistency: &str,
        read_only: bool,
        cache: Option<u64>,
        dirty_limit: Option<u64>,
    ) -> PyResult<Session> {
        let mut options = ConnectOptions::to(place)
            .read_only(read_only)
            // Other threads may change arrays while they are written.
            .steady_memory(false);
        options = match consistency {
            "strict" => options.consistency(Consistency::Strict),
            "commit" => options.consistency(Consistency::Commit),
            other => {
                return Err(invalid(
                    py,
                    format!("consistency {other:?}: give 'strict' or 'commit'"),
                ));
            }
        };
        if let Some(file) = key_file {
            options = options.key_file(file);
        }
        if let Some(seconds) = io_timeout {
            let time = Duration::try_from_secs_f64(seconds)
                .map_err(|error| invalid(py, format!("io_timeout {seconds}: {error}")))?;
            options = options.io_timeout(time);
        }
        if let Some(bytes) = cache {
            options = options.cache(bytes);
        }
        if let Some(bytes) = dirty_limit {
            options = options.dirty_limit(bytes);
        }
        let session = call(py, || session::Session::connect(&options))?;
        Ok(Session {
            inner: Own::new(session),
        })
    }

    /// Opens a filesystem of this process alone.
    #[staticmethod]
    fn alone(py: Python<'_>, dir: PathBuf) -> PyResult<Session> {
        let session = call(py, || session::Session::alone(&dir))?;
        Ok(Session {
            inner: Own::new(session),
        })
    }

    /// Ends the session, when everything written is on the servers' disks. A second close has no effect.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        match self.inner.take()? {
            Some(session) => call_to_end(py, move || session.close()),
            None => Ok(()),
        }
    }

    /// Whether it was closed.
    fn is_closed(&self, py: Python<'_>) -> bool {
        self.inner.with(py, |_| ()).is_err()
    }

    /// Brings everything written to the servers' disks.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        let session = self.get(py)?;
        call_to_end(py, || session.sync())
    }

    /// Counters, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        let session = self.get(py)?;
        Ok(py.detach(|| session.stats().to_string()))
    }

    /// Opens an object.
    fn open(&self, py: Python<'_>, path: PathBuf, writable: bool) -> PyResult<Object> {
        let session = self.get(py)?;
        let access = match writable {
            true => Access::ReadWrite,
            false => Access::Read,
        };
        Ok(Object::new(call(py, || session.open(path, access))?))
    }

    /// Creates an object with these properties and tags, and opens it.
    fn create(
        &self,
        py: Python<'_>,
        path: PathBuf,
        properties: Vec<(String, String)>,
        tags: Vec<Given>,
    ) -> PyResult<Object> {
        let session = self.get(py)?;
        let mut spec = ObjectSpec::new();
        for (property, text) in &properties {
            spec = call(py, || spec.with(property, text))?;
        }
        for (key, kind, bytes) in tags {
            spec = spec.tag(key, tag(py, &kind, &bytes)?);
        }
        Ok(Object::new(call(py, || session.create(path, &spec))?))
    }

    /// Creates a container.
    fn create_container(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let session = self.get(py)?;
        call(py, || session.create_container(path).map(drop))
    }

    /// Names and kinds of the entries of a container, sorted by name.
    fn list(&self, py: Python<'_>, path: PathBuf) -> PyResult<Vec<(OsString, &'static str)>> {
        let session = self.get(py)?;
        call(py, || {
            let listed: Result<Vec<_>, Error> = session.container(path)?.list()?.collect();
            let mut listed = listed?;
            listed.sort_by(|a, b| a.name.as_bytes().cmp(b.name.as_bytes()));
            let listed = listed.into_iter();
            Ok(listed.map(|entry| (entry.name, kind(entry.kind))).collect())
        })
    }

    /// The attributes of an entry.
    fn stat<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
        let session = self.get(py)?;
        let stat = call(py, || session.root().stat(path))?;
        described(py, &stat)
    }

    /// Removes an object, or an empty container.
    fn remove(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let session = self.get(py)?;
        call(py, || session.root().remove(path))
    }

    /// Renames an entry; one that has the new name already is replaced only if `replace`.
    fn rename(&self, py: Python<'_>, from: PathBuf, to: PathBuf, replace: bool) -> PyResult<()> {
        let session = self.get(py)?;
        let flags = match replace {
            true => RenameFlags::Replace,
            false => RenameFlags::NoReplace,
        };
        call(py, || session.root().rename(from, to, flags))
    }

    /// The tags of an object or container: key, type and bytes.
    fn tags<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Vec<Tagged<'py>>> {
        let session = self.get(py)?;
        let tags = call(py, || session.root().tags(path))?;
        Ok(tagged(py, tags))
    }

    /// Sets and removes tags of objects and containers, all or none.
    fn tag(&self, py: Python<'_>, edits: Vec<(PathBuf, Vec<Given>, Vec<String>)>) -> PyResult<()> {
        let session = self.get(py)?;
        let edits: PyResult<Vec<TagEdit>> = edits
            .into_iter()
            .map(|(path, set, remove)| {
                let set: PyResult<Vec<(String, Tag)>> = set
                    .into_iter()
                    .map(|(key, kind, bytes)| Ok((key, tag(py, &kind, &bytes)?)))
                    .collect();
                Ok(TagEdit {
                    path,
                    set: set?,
                    remove,
                })
            })
            .collect();
        let edits = edits?;
        call(py, || session.root().tag(edits))
    }

    /// The hits of a search: path, kind and size of each.
    #[pyo3(signature = (query, below=None, limit=None, sort=None))]
    fn find(
        &self,
        py: Python<'_>,
        query: String,
        below: Option<PathBuf>,
        limit: Option<u64>,
        sort: Option<String>,
    ) -> PyResult<Vec<(OsString, &'static str, u64)>> {
        let session = self.get(py)?;
        let mut search = Query::new(query);
        if let Some(below) = below {
            search = search.below(below);
        }
        if let Some(limit) = limit {
            search = search.limit(limit);
        }
        if let Some(sort) = sort {
            search = search.sort(sort);
        }
        let found = call(py, || session.find(&search))?;
        let found = found.into_iter();
        Ok(found
            .map(|found| (found.path.into_os_string(), kind(found.kind), found.size))
            .collect())
    }

    /// The number of hits of a search.
    fn count(&self, py: Python<'_>, query: String, below: Option<PathBuf>) -> PyResult<u64> {
        let session = self.get(py)?;
        let mut search = Query::new(query);
        if let Some(below) = below {
            search = search.below(below);
        }
        call(py, || session.count(&search))
    }
}

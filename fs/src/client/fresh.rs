//! How an object's form and its tiling are kept up with what the metadata service has.

use std::time::{Duration, Instant};

use slabfs_mdserver::api::Stored;
use slabfs_model::Version;
use slabfs_model::layout::Tiling;

use super::Client;
use super::error::FsError;
use super::geometry::Geometry;
use super::object::Object;

/// How old a mount's idea of an object may be while other mounts are attached, if it is not strict.
pub(super) const FRESH_FOR: Duration = Duration::from_secs(1);

impl Client {
    /// Runs `f` on the tiling of an `aligned` object, fetched first if it is behind.
    pub(super) fn with_tiling<R>(
        &self,
        object: &Object,
        geometry: &Geometry,
        f: impl FnOnce(&Tiling<Stored>) -> R,
    ) -> Result<R, FsError> {
        {
            let chunks = object.tiling.read();
            if chunks
                .version
                .is_some_and(|version| version >= geometry.info.tiling)
            {
                return Ok(f(&chunks.tiling));
            }
        }
        let mut chunks = object.tiling.write();
        if chunks
            .version
            .is_none_or(|version| version < geometry.info.tiling)
        {
            let known = chunks.version.unwrap_or(Version(0));
            let reply = self.md().tiling(object.ino, known)?;
            let version = reply.version();
            if chunks.version.is_none() || chunks.tiling.rank() != geometry.cells.len() {
                chunks.tiling = Tiling::new(geometry.cells.len());
            }
            reply
                .apply(&mut chunks.tiling)
                .map_err(|error| FsError::Invalid(error.to_string()))?;
            chunks.version = Some(version);
        }
        Ok(f(&chunks.tiling))
    }

    /// Forgets the tiling and compares the form with the metadata service's.
    pub(super) fn refresh_tiling(&self, object: &Object) -> Result<(), FsError> {
        object.tiling.write().version = None;
        self.refresh(object)
    }

    /// Compares the form with the metadata service's.
    pub(super) fn refresh(&self, object: &Object) -> Result<(), FsError> {
        let entry = self.md().getattr(object.ino)?;
        *object.checked.lock() = Instant::now();
        if entry.attr.change <= object.geometry.read().attr.change {
            return Ok(());
        }
        let mut geometry = object.geometry.write();
        self.adopt(object, &mut geometry, &entry)?;
        Ok(())
    }
}

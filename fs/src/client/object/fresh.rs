//! Refreshes an object's form and its tiling from the metadata service.

use std::time::{Duration, Instant};

use slabfs_mdserver::api::{MdError, Stored, op};
use slabfs_model::layout::Tiling;

use crate::client::Client;
use crate::client::error::FsError;
use crate::client::object::Object;
use crate::client::object::geometry::Geometry;
use crate::client::stored::tilings::{Chunks, Need};

/// How long a form may be used unchecked while other mounts are attached, in mode `commit`.
pub(in crate::client) const FRESH_FOR: Duration = Duration::from_secs(1);

/// Requests for the tiling of one request before its form is checked again.
const MOST_ASKS: usize = 16;

impl Client {
    /// Runs `f` on the tiling of an `aligned` object, after fetching the parts that it needs and that are missing or
    /// old.
    pub(in crate::client) fn with_tiling<R>(
        &self,
        object: &Object,
        geometry: &Geometry,
        need: Need<'_>,
        f: impl FnOnce(&Tiling<Stored>) -> R,
    ) -> Result<R, FsError> {
        let least = geometry.info.tiling;
        let ready = |chunks: &Chunks| {
            chunks.version.is_some_and(|version| version >= least) && chunks.has(need)
        };
        self.tilings.touch(&object.tiling);
        {
            let chunks = object.tiling.read();
            if ready(&chunks) {
                return Ok(f(&chunks.tiling));
            }
        }
        let rank = geometry.cells.len();
        let mut chunks = object.tiling.write();
        // The first reply may bring the version, and the second the region; more are needed only if other mounts
        // commit meanwhile.
        let mut asked = 0;
        while !ready(&chunks) {
            asked += 1;
            if asked > MOST_ASKS {
                return Err(FsError::Md(MdError::Stale));
            }
            let epoch = self.tilings.epoch();
            let (known, wanted) = chunks.question(least, rank, need, self.tilings.most_along());
            let reply = self.md().tiling_part(object.ino, known, wanted)?;
            let answered = chunks.answered(known, rank, reply);
            if answered.is_err() || epoch != self.tilings.epoch() {
                chunks.version = None;
            }
            answered.map_err(|error| FsError::Invalid(error.to_string()))?;
            if epoch != self.tilings.epoch() {
                return Err(FsError::Md(MdError::SessionLost));
            }
        }
        let result = f(&chunks.tiling);
        let weight = chunks.weight();
        drop(chunks);
        self.tilings.weigh(object.ino, &object.tiling, weight);
        Ok(result)
    }

    /// Drops the tiling and refreshes the form.
    pub(in crate::client) fn refresh_tiling(&self, object: &Object) -> Result<(), FsError> {
        object.tiling.outdate();
        self.refresh(object)
    }

    /// Fetches the form from the metadata service, and adopts it if it is newer.
    pub(in crate::client) fn refresh(&self, object: &Object) -> Result<(), FsError> {
        let entry = self.md().call(op::GetAttr { ino: object.ino })?;
        *object.checked.lock() = Instant::now();
        if entry.attr.change <= object.geometry.read().attr.change {
            return Ok(());
        }
        let mut geometry = object.geometry.write();
        self.adopt(object, &mut geometry, &entry)?;
        Ok(())
    }
}

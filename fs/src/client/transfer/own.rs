//! What a caller holds of a transfer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use slabfs_model::{Coords, Hyperslab};

use super::super::error::FsError;
use super::super::geometry::Geometry;
use super::super::handle::Handle;
use super::Memory;
use super::core::{self, Core, Own, Phase, Plan};
use super::engine::Started;

/// A read or write of a selection: created, started, waited for.
///
/// As a `Future` it is started when it is first polled, if it was not before, and ends with its result; it
/// needs no runtime. [`Transfer::wait`] is the same for a thread. Both hand the buffer back.
///
/// Dropped, one that has not begun is cancelled, and one that has goes on; an owned buffer is then dropped at its
/// end.
#[must_use = "a transfer does nothing before it is started"]
#[derive(Debug)]
pub struct Transfer<B> {
    own: Option<Own<B>>,
}

impl<B> Unpin for Transfer<B> {}

/// What went wrong with a transfer, and its buffer.
pub struct Failed<B> {
    /// What went wrong.
    pub error: FsError,
    /// The buffer; after a read its contents are not defined.
    pub buffer: B,
}

impl<B> fmt::Debug for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Failed").field(&self.error).finish()
    }
}

impl<B> fmt::Display for Failed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> std::error::Error for Failed<B> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl<B> From<Failed<B>> for FsError {
    fn from(failed: Failed<B>) -> FsError {
        failed.error
    }
}

impl Handle {
    /// A transfer of `memory` of `buffer` to the elements `slab` of the object (also where the handle shows a
    /// selection of it), as many of them. Along an unlimited slowest axis the object grows as far as the selection
    /// reaches.
    ///
    /// # Errors
    /// `Invalid` where the selections do not fit each other, the buffer, the object or its type; `ReadOnly`;
    /// `TooBig` for a selection beyond what the object may hold.
    pub fn write_transfer<B: AsRef<[u8]> + Send + 'static>(
        self: &Arc<Self>,
        slab: &Hyperslab,
        memory: &Memory,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        let plan = |len| self.plan_transfer(true, slab, memory, len);
        match core::from_owned(buffer, self.client.transfers().counted(), plan) {
            Ok(own) => Ok(Transfer::new(own)),
            Err((error, buffer)) => Err(Failed { error, buffer }),
        }
    }

    /// A transfer of the elements `slab` of the object to `memory` of `buffer`, as many of them.
    ///
    /// # Errors
    /// `Invalid` where the selections do not fit each other, the buffer, the object or its type.
    pub fn read_transfer<B: AsMut<[u8]> + Send + 'static>(
        self: &Arc<Self>,
        slab: &Hyperslab,
        memory: &Memory,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        let plan = |len| self.plan_transfer(false, slab, memory, len);
        match core::into_owned(buffer, self.client.transfers().counted(), plan) {
            Ok(own) => Ok(Transfer::new(own)),
            Err((error, buffer)) => Err(Failed { error, buffer }),
        }
    }

    /// What a transfer into or out of a buffer of `len` bytes moves.
    pub(super) fn plan_transfer(
        self: &Arc<Self>,
        writes: bool,
        slab: &Hyperslab,
        memory: &Memory,
        len: usize,
    ) -> Result<Plan, FsError> {
        if writes {
            self.check()?;
        }
        let dtype = {
            let geometry = self.object.geometry.read();
            shaped(&geometry, slab)?;
            geometry.info.dtype
        };
        let memory = memory.fit(len, &slab.packed_shape(), dtype)?;
        // What cannot be converted is refused here.
        match writes {
            true => memory.inward()?,
            false => memory.outward()?,
        };
        let slab = slab.to_cells(dtype.size()).map_err(invalid)?;
        let bounds = slab.bounds();
        let plan = Plan {
            handle: self.clone(),
            writes,
            batch: None,
            slab,
            bounds,
            memory,
        };
        let fits = |this: &Self| {
            let geometry = this.object.geometry.read();
            plan.check(&geometry, this.object.size(&geometry))
        };
        // Others may have made the object longer; under a right it is looked at again in any case.
        match fits(self) {
            Err(FsError::Invalid(_) | FsError::TooBig(_)) if !self.client.shared() => {
                self.client.refresh(&self.object)?;
                fits(self)?;
            }
            Err(_) if self.client.shared() => {}
            other => other?,
        }
        Ok(plan)
    }
}

/// Checks rank and pattern of a selection; not where it ends.
fn shaped(geometry: &Geometry, slab: &Hyperslab) -> Result<(), FsError> {
    let limits = Coords::from_elem(slabfs_model::MAX_BYTES, geometry.info.dims.len());
    slab.validate(&limits).map_err(invalid)
}

fn invalid(error: slabfs_model::GeometryError) -> FsError {
    FsError::Invalid(format!("the selection of the object: {error}"))
}

impl Plan {
    /// Whether the object, as it is now, holds the selection, or may grow to.
    pub(super) fn check(&self, geometry: &Geometry, size: u64) -> Result<(), FsError> {
        if geometry.info.dtype != self.memory.object || geometry.cells.len() != self.slab.rank() {
            return Err(FsError::Invalid(
                "the object was declared anew since the transfer was made".into(),
            ));
        }
        if let Some(batch) = &self.batch {
            return batch.check(self, geometry, size);
        }
        let Some(bounds) = &self.bounds else {
            return Ok(());
        };
        let cells = geometry.cells_at(size);
        let grows = self.writes && geometry.grows();
        for axis in 0..cells.len() {
            let end = bounds.end(axis);
            if end <= cells[axis]
                || (grows && axis == 0 && self.reach(geometry) <= geometry.size_limit())
            {
                continue;
            }
            let dims = slabfs_model::format_dims(&geometry.dims_at(size));
            let text = format!(
                "the selection reaches beyond the object, whose dims are {dims}, on axis {axis}; dims grow only \
                 along an unlimited slowest axis, or with `slabfs set --dims`"
            );
            return Err(match self.writes {
                true => FsError::TooBig(text),
                false => FsError::Invalid(text),
            });
        }
        Ok(())
    }

    /// The bytes an object has at least that holds the selection, in whole rows.
    pub(super) fn reach(&self, geometry: &Geometry) -> u64 {
        let Some(bounds) = &self.bounds else {
            return 0;
        };
        let end = bounds.end(0);
        match geometry.cells.len() {
            1 => geometry.whole_rows(end),
            _ => end.saturating_mul(geometry.row),
        }
    }
}

impl<B> Transfer<B> {
    pub(super) fn new(own: Own<B>) -> Transfer<B> {
        Transfer { own: Some(own) }
    }

    pub(super) fn core(&self) -> Option<&Arc<Core>> {
        self.own.as_ref().map(Own::core)
    }

    /// Starts it; once is enough. Returns at once, unless so much is under way that it has to wait for room
    /// (`ClientOptions::transfer_limit`).
    ///
    /// # Errors
    /// `Closed` when the client is, `Invalid` when the handle is.
    pub fn start(&mut self) -> Result<(), FsError> {
        start_all([self])
    }

    /// Whether it has ended, so that `wait` would not wait.
    pub fn test(&self) -> bool {
        self.core().is_none_or(|core| core.phase() == Phase::Ended)
    }

    /// Ends it without doing anything if it has not begun. One under way ends with `Cancelled` if nothing of it
    /// was committed, else with its result.
    pub fn cancel(&self) {
        if let Some(core) = self.core() {
            core.cancel();
        }
    }

    /// Waits for its end, after starting it if it was not, and hands back the buffer.
    ///
    /// # Errors
    /// Its own; `Cancelled`. The buffer comes with it.
    ///
    /// # Panics
    /// If it was polled to its end before.
    pub fn wait(mut self) -> Result<B, Failed<B>> {
        let refused = self.start().err();
        let Some(own) = self.own.take() else {
            panic!("a transfer was waited for after its end");
        };
        own.core().wait();
        let Ok((result, buffer)) = own.finish() else {
            unreachable!("it was waited for");
        };
        settle(refused.map_or(result, Err), buffer)
    }
}

fn settle<B>(result: Result<(), FsError>, buffer: B) -> Result<B, Failed<B>> {
    match result {
        Ok(()) => Ok(buffer),
        Err(error) => Err(Failed { error, buffer }),
    }
}

impl<B> Future for Transfer<B> {
    type Output = Result<B, Failed<B>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(core) = self.core() else {
            panic!("a transfer was polled after its end");
        };
        let mut refused = None;
        match launch(&[core], Some(context.waker())) {
            Ok(Started::NoRoom) => return Poll::Pending,
            Ok(Started::Yes) => {
                if core.wake_at_end(context.waker()) {
                    return Poll::Pending;
                }
            }
            Err(error) => refused = Some(error),
        }
        let Some(own) = self.own.take() else {
            return Poll::Pending;
        };
        match own.finish() {
            Ok((result, buffer)) => Poll::Ready(settle(refused.map_or(result, Err), buffer)),
            Err(own) => {
                self.own = Some(own);
                Poll::Pending
            }
        }
    }
}

impl<B> Drop for Transfer<B> {
    fn drop(&mut self) {
        let Some(core) = self.core() else { return };
        // Somebody may have its `Control`, and start it now.
        core.cancel_created();
        if core.phase() == Phase::Queued {
            core.plan.handle.client.transfers().withdraw(core);
        }
    }
}

/// Transfers of any buffers, for [`start_all`].
pub trait Startable: sealed::Sealed {}

pub(super) mod sealed {
    use std::sync::Arc;

    use super::Core;

    /// The inside of a transfer.
    #[derive(Debug)]
    pub struct Inside(pub(in super::super) Arc<Core>);

    pub trait Sealed {
        #[doc(hidden)]
        fn inside(&self) -> Option<Inside>;
    }
}

impl<B> Startable for Transfer<B> {}

impl<B> sealed::Sealed for Transfer<B> {
    fn inside(&self) -> Option<sealed::Inside> {
        self.core().cloned().map(sealed::Inside)
    }
}

/// Starts transfers of one or several objects of one client as one: all that they need of a data server
/// travels in one message (in several above 64 MiB), writes first. Each ends with its own result. Waits only for
/// room.
///
/// # Errors
/// `Closed` when the client is; `Released` when a handle is; `Invalid` when they are of several clients. None is started
/// then.
pub fn start_all<'t, T: Startable + ?Sized + 't>(
    transfers: impl IntoIterator<Item = &'t mut T>,
) -> Result<(), FsError> {
    let cores: Vec<Arc<Core>> = cores_of(transfers);
    let cores: Vec<&Arc<Core>> = cores.iter().collect();
    launch(&cores, None).map(drop)
}

/// The same for asynchronous callers: pending while there is no room.
pub fn start_all_async<'t, T: Startable + ?Sized + 't>(
    transfers: impl IntoIterator<Item = &'t mut T>,
) -> StartAll<'t> {
    StartAll {
        cores: cores_of(transfers),
        transfers: std::marker::PhantomData,
    }
}

/// Transfers that are being started; see [`start_all_async`].
#[must_use = "nothing is started before it is polled"]
#[derive(Debug)]
pub struct StartAll<'t> {
    cores: Vec<Arc<Core>>,
    transfers: std::marker::PhantomData<&'t mut ()>,
}

impl Future for StartAll<'_> {
    type Output = Result<(), FsError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let cores: Vec<&Arc<Core>> = self.cores.iter().collect();
        match launch(&cores, Some(context.waker())) {
            Ok(Started::Yes) => Poll::Ready(Ok(())),
            Ok(Started::NoRoom) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

fn cores_of<'t, T: Startable + ?Sized + 't>(
    transfers: impl IntoIterator<Item = &'t mut T>,
) -> Vec<Arc<Core>> {
    let inside = transfers.into_iter().filter_map(|one| one.inside());
    inside.map(|inside| inside.0).collect()
}

fn launch(cores: &[&Arc<Core>], waker: Option<&Waker>) -> Result<Started, FsError> {
    let Some(first) = cores.first() else {
        return Ok(Started::Yes);
    };
    let client = &first.plan.handle.client;
    let ours = |core: &&Arc<Core>| Arc::ptr_eq(&core.plan.handle.client, client);
    if !cores.iter().all(ours) {
        return Err(FsError::Invalid(
            "transfers of different sessions cannot be started as one".into(),
        ));
    }
    client.launch(cores, waker)
}

/// Waits for all of them, each with its own result, in their order; those that were not started are, as one.
///
/// # Errors
/// When those could not be started: all buffers are dropped with what was started before cancelled.
pub fn wait_all<B>(
    transfers: impl IntoIterator<Item = Transfer<B>>,
) -> Result<Vec<Result<B, Failed<B>>>, FsError> {
    let mut transfers: Vec<Transfer<B>> = transfers.into_iter().collect();
    start_all(&mut transfers)?;
    Ok(transfers.into_iter().map(Transfer::wait).collect())
}

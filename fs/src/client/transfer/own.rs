//! The handle that a caller holds on a transfer.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use slabfs_model::Hyperslab;
use slabfs_model::batch::Plan as Pattern;

use super::Memory;
use super::engine::Started;
use crate::client::error::FsError;
use crate::client::handle::Handle;
use crate::client::request::core::{self, Core, Own, Phase};

/// A read or write of a selection: created, started, waited for.
///
/// As a `Future` it is started when it is first polled, if it was not before, and ends with its result; it
/// needs no runtime. [`Transfer::wait`] is the same for a thread. Both return the buffer.
///
/// Dropping a transfer that is not running yet cancels it; a running one continues. An owned buffer is then dropped
/// at its end.
#[must_use = "a transfer does nothing before it is started"]
#[derive(Debug)]
pub struct Transfer<B> {
    own: Option<Own<B>>,
}

impl<B> Unpin for Transfer<B> {}

/// The error of a transfer, and its buffer.
pub struct Failed<B> {
    /// The error.
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
    /// A transfer of `memory` of `buffer` to as many elements `slab` of the object (also where the handle shows a
    /// selection of it). Along an unlimited slowest axis the object grows as far as the selection reaches.
    ///
    /// # Errors
    /// `Invalid` if the selections do not match each other, the buffer, the object or its dtype; `ReadOnly`; `TooBig`
    /// for a selection beyond the object's maximum size.
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

    /// A transfer of the elements `slab` of the object to as many elements `memory` of `buffer`.
    ///
    /// # Errors
    /// `Invalid` if the selections do not match each other, the buffer, the object or its dtype.
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

    /// A transfer of the pieces of a batch from `buffer` to the object, which grows if it may. It ends with `Invalid`
    /// if dims other than the first change before it runs: its bytes would belong to other elements.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection or an appending one, and a buffer that is too small; `ReadOnly`.
    pub fn write_batch_transfer<B: AsRef<[u8]> + Send + 'static>(
        self: &Arc<Self>,
        batch: Pattern,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        let all = 0..batch.bytes();
        let plan = |len| self.plan_batch(true, batch, all, len);
        match core::from_owned(buffer, self.client.transfers().counted(), plan) {
            Ok(own) => Ok(Transfer::new(own)),
            Err((error, buffer)) => Err(Failed { error, buffer }),
        }
    }

    /// A transfer of the pieces of a batch from the object to `buffer`; as for writes, dims other than the first must
    /// stay.
    ///
    /// # Errors
    /// `Invalid` for a handle on a selection, pieces that overlap in the buffer, and a buffer that is too small.
    pub fn read_batch_transfer<B: AsMut<[u8]> + Send + 'static>(
        self: &Arc<Self>,
        batch: Pattern,
        buffer: B,
    ) -> Result<Transfer<B>, Failed<B>> {
        let all = 0..batch.bytes();
        let plan = |len| self.plan_batch(false, batch, all, len);
        match core::into_owned(buffer, self.client.transfers().counted(), plan) {
            Ok(own) => Ok(Transfer::new(own)),
            Err((error, buffer)) => Err(Failed { error, buffer }),
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

    /// Starts it, if it was not started. Returns at once, unless the limit on bytes in flight is reached
    /// (`ClientOptions::transfer_limit`).
    ///
    /// # Errors
    /// `Closed` if the client is closed, `Released` if the handle is.
    pub fn start(&mut self) -> Result<(), FsError> {
        start_all([self])
    }

    /// Whether it has ended, so that `wait` would return at once.
    pub fn test(&self) -> bool {
        self.core().is_none_or(|core| core.phase() == Phase::Ended)
    }

    /// Ends it without any effect if it is not running yet. A running one ends with `Cancelled` if nothing of it was
    /// committed, otherwise with its result.
    pub fn cancel(&self) {
        if let Some(core) = self.core() {
            core.plan.handle.client.transfers().cancel(core);
        }
    }

    /// Waits for its end, after starting it if necessary, and returns the buffer.
    ///
    /// # Errors
    /// Its own; `Cancelled`. The buffer is returned with it.
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
        // Another thread may have its `Control`, and start it now.
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
    pub struct Inside(pub(in crate::client) Arc<Core>);

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

/// Starts transfers of one or several objects of one client together: their requests to a data server travel in one
/// message (in several above 64 MiB), writes first. Each ends with its own result. Blocks only on the limit on bytes in
/// flight.
///
/// # Errors
/// `Closed` if the client is closed; `Released` if a handle is; `Invalid` if they belong to several clients. None is
/// started then.
pub fn start_all<'t, T: Startable + ?Sized + 't>(
    transfers: impl IntoIterator<Item = &'t mut T>,
) -> Result<(), FsError> {
    let cores: Vec<Arc<Core>> = cores_of(transfers);
    let cores: Vec<&Arc<Core>> = cores.iter().collect();
    launch(&cores, None).map(drop)
}

/// As [`start_all`] for asynchronous callers: pending while the limit is reached.
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
    let client = |core: &Arc<Core>| Arc::clone(&core.plan.handle.client);
    let family = client(first).family.clone();
    if !cores
        .iter()
        .all(|core| Arc::ptr_eq(&client(core).family, &family))
    {
        return Err(FsError::Invalid(
            "transfers of different sessions cannot be started as one".into(),
        ));
    }
    // Those of objects in one shard at a time. What is started already is not started again by a later poll.
    let mut left: Vec<&Arc<Core>> = cores.to_vec();
    while let Some(first) = left.first() {
        let ours = client(first);
        let (these, others): (Vec<_>, Vec<_>) = left
            .into_iter()
            .partition(|core| Arc::ptr_eq(&core.plan.handle.client, &ours));
        left = others;
        if let Started::NoRoom = ours.launch(&these, waker)? {
            return Ok(Started::NoRoom);
        }
    }
    Ok(Started::Yes)
}

/// Waits for all of them and returns their results in order; starts those that were not started, together.
///
/// # Errors
/// If those could not be started: all buffers are dropped, and the transfers started before are cancelled.
pub fn wait_all<B>(
    transfers: impl IntoIterator<Item = Transfer<B>>,
) -> Result<Vec<Result<B, Failed<B>>>, FsError> {
    let mut transfers: Vec<Transfer<B>> = transfers.into_iter().collect();
    start_all(&mut transfers)?;
    Ok(transfers.into_iter().map(Transfer::wait).collect())
}

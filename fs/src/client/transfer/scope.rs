//! Transfers of borrowed buffers: none of a scope is in flight when the scope returns.

use std::marker::PhantomData;
use std::sync::Arc;

use slabfs_model::{Hyperslab, batch};

use super::{Failed, Memory, Transfer};
use crate::client::error::FsError;
use crate::client::handle::Handle;
use crate::client::request::core::{self, Running};
use crate::client::request::plan::Plan;

/// Makes transfers of borrowed buffers; see [`scope`].
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    running: Arc<Running>,
    /// Invariant in both, as in `std::thread::Scope`: the lifetimes of a scope can be neither lengthened nor
    /// shortened.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// Runs `f`, which may make transfers of buffers it borrows, and returns when all transfers it started have ended,
/// including those that were dropped or forgotten, and also when it panics.
///
/// ```no_run
/// # use slabfs_fs::client::transfer::{self, Memory};
/// # use slabfs_model::Hyperslab;
/// # fn f(handle: &std::sync::Arc<slabfs_fs::client::Handle>) -> Result<(), slabfs_fs::client::FsError> {
/// let (ones, mut other) = (vec![1u8; 100], vec![0u8; 100]);
/// transfer::scope(|scope| {
///     let slab = Hyperslab::all(&[100]);
///     let mut write = scope.write(handle, &slab, &Memory::packed(), &ones)?;
///     let mut read = scope.read(handle, &slab, &Memory::packed(), &mut other)?;
///     write.start()?;
///     read.start()?; // sees what is written
///     write.wait()?;
///     read.wait()?;
///     Ok(())
/// })
/// # }
/// ```
///
/// A buffer that is given to a read is inaccessible while the read is in flight:
///
/// ```compile_fail
/// # use slabfs_fs::client::transfer::{self, Memory};
/// # use slabfs_model::Hyperslab;
/// # fn f(handle: &std::sync::Arc<slabfs_fs::client::Handle>) {
/// let mut buffer = vec![0u8; 100];
/// transfer::scope(|scope| {
///     let read = scope.read(handle, &Hyperslab::all(&[100]), &Memory::packed(), &mut buffer);
///     buffer[0] = 1;
///     drop(read);
/// });
/// # }
/// ```
///
/// A buffer that ends before the scope is refused as well:
///
/// ```compile_fail
/// # use slabfs_fs::client::transfer::{self, Memory};
/// # use slabfs_model::Hyperslab;
/// # fn f(handle: &std::sync::Arc<slabfs_fs::client::Handle>) {
/// transfer::scope(|scope| {
///     let buffer = vec![0u8; 100];
///     drop(scope.write(handle, &Hyperslab::all(&[100]), &Memory::packed(), &buffer));
/// });
/// # }
/// ```
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    /// Waits also when `f` panics.
    struct Waits(Arc<Running>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    let scope = Scope {
        running: Arc::default(),
        scope: PhantomData,
        env: PhantomData,
    };
    let _waits = Waits(scope.running.clone());
    f(&scope)
}

impl<'scope> Scope<'scope, '_> {
    /// A transfer of `memory` of `buffer` to the elements `slab` of the object.
    ///
    /// # Errors
    /// As [`Handle::write_transfer`].
    pub fn write(
        &'scope self,
        handle: &Arc<Handle>,
        slab: &Hyperslab,
        memory: &Memory,
        buffer: &'scope [u8],
    ) -> Result<Transfer<&'scope [u8]>, Failed<&'scope [u8]>> {
        self.out_of(
            handle,
            handle.plan_transfer(true, slab, memory, buffer.len()),
            buffer,
        )
    }

    /// A transfer of the elements `slab` of the object to `memory` of `buffer`.
    ///
    /// # Errors
    /// As [`Handle::read_transfer`].
    pub fn read(
        &'scope self,
        handle: &Arc<Handle>,
        slab: &Hyperslab,
        memory: &Memory,
        buffer: &'scope mut [u8],
    ) -> Result<Transfer<&'scope mut [u8]>, Failed<&'scope mut [u8]>> {
        let plan = handle.plan_transfer(false, slab, memory, buffer.len());
        self.into(handle, plan, buffer)
    }

    /// A transfer of the pieces of a batch from `buffer` to the object.
    ///
    /// # Errors
    /// As [`Handle::write_batch_transfer`].
    pub fn write_batch(
        &'scope self,
        handle: &Arc<Handle>,
        batch: batch::Plan,
        buffer: &'scope [u8],
    ) -> Result<Transfer<&'scope [u8]>, Failed<&'scope [u8]>> {
        let all = 0..batch.bytes();
        let plan = handle.plan_batch(true, batch, all, buffer.len());
        self.out_of(handle, plan, buffer)
    }

    /// A transfer of the pieces of a batch from the object to `buffer`.
    ///
    /// # Errors
    /// As [`Handle::read_batch_transfer`].
    pub fn read_batch(
        &'scope self,
        handle: &Arc<Handle>,
        batch: batch::Plan,
        buffer: &'scope mut [u8],
    ) -> Result<Transfer<&'scope mut [u8]>, Failed<&'scope mut [u8]>> {
        let all = 0..batch.bytes();
        let plan = handle.plan_batch(false, batch, all, buffer.len());
        self.into(handle, plan, buffer)
    }

    fn out_of(
        &'scope self,
        handle: &Arc<Handle>,
        plan: Result<Plan, FsError>,
        buffer: &'scope [u8],
    ) -> Result<Transfer<&'scope [u8]>, Failed<&'scope [u8]>> {
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => return Err(Failed { error, buffer }),
        };
        let counted = handle.client.transfers().counted();
        // SAFETY: the buffer is valid for 'scope, and so is the scope that `self` borrows: `scope` waits for `running`
        // before that ends.
        let own = unsafe { core::from_borrowed(buffer, plan, counted, self.running.clone()) };
        Ok(Transfer::new(own))
    }

    fn into(
        &'scope self,
        handle: &Arc<Handle>,
        plan: Result<Plan, FsError>,
        buffer: &'scope mut [u8],
    ) -> Result<Transfer<&'scope mut [u8]>, Failed<&'scope mut [u8]>> {
        let plan = match plan {
            Ok(plan) => plan,
            Err(error) => return Err(Failed { error, buffer }),
        };
        let counted = handle.client.transfers().counted();
        // SAFETY: as in `out_of`.
        let own = unsafe { core::into_borrowed(buffer, plan, counted, self.running.clone()) };
        Ok(Transfer::new(own))
    }
}

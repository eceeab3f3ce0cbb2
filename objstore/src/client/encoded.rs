//! Reads the stored bytes of a chunk that is encoded, without decoding them: for copies into files of other formats.

use slabfs_model::ServerId;

use super::{
    Servers,
    fanout::{Asker, Failure, Job, Message, Request, decode, encode},
};
use crate::{
    error::Result,
    name::ChunkName,
    store::ChunkStore,
    wire::{
        Incoming, WireResult,
        messages::{Answer, kind},
    },
};

impl Servers {
    /// The stored bytes of a free chunk, which `PutEncoded` takes; `None` if it is not stored encoded.
    pub fn read_encoded(&self, server: ServerId, name: &ChunkName) -> Result<Option<Vec<u8>>> {
        let found = None;
        let mut jobs = [Job::of(server, ReadEncoded { name, found })];
        self.fan_out(&self.table(), &mut jobs, false)
            .map_err(|(_, e)| e)?;
        let [job] = jobs;
        Ok(job.messages.into_iter().find_map(|message| message.found))
    }
}

struct ReadEncoded<'a> {
    name: &'a ChunkName,
    found: Option<Vec<u8>>,
}

impl<'a> Message<'a> for ReadEncoded<'a> {
    fn first(&self) -> usize {
        0
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn request(&self, _: Asker) -> WireResult<Request<'a>> {
        Ok(Request::bare(kind::READ_ENCODED, encode(self.name)?))
    }

    fn take(
        &mut self,
        control: &[u8],
        incoming: &mut Incoming<'_>,
    ) -> WireResult<Result<(), Failure>> {
        self.found = match decode::<Answer<bool>>(control, incoming)? {
            Ok(true) => {
                let mut bytes = Vec::new();
                incoming.read_to(&mut bytes)?;
                Some(bytes)
            }
            Ok(false) => None,
            Err(error) => return Ok(Err((0, error))),
        };
        Ok(Ok(()))
    }

    fn local(&mut self, store: &dyn ChunkStore) -> Result<(), Failure> {
        self.found = store.read_encoded(self.name).map_err(|e| (0, e))?;
        Ok(())
    }
}

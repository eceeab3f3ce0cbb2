//! Which bytes of chunks occupy disk space.

use slabfs_model::ServerId;
use smallvec::SmallVec;

use super::Servers;
use super::fanout::{Asker, Failure, Message, Request, Sorter, decode, encode, weight};
use crate::error::Result;
use crate::name::ChunkName;
use crate::store::{Allocated, ChunkStore};
use crate::wire::messages::{AllocatedItem, Answer, kind};
use crate::wire::{Incoming, WireResult};

impl Servers {
    /// Which bytes of chunks occupy disk space, for each chunk from a given byte on; see [`ChunkStore::allocated`].
    /// One message a server.
    pub fn allocated(&self, chunks: &[(ServerId, ChunkName, u64)]) -> Result<Vec<Allocated>> {
        let mut sorter = Sorter::<Ask<'_>>::new();
        for (number, (server, name, from)) in chunks.iter().enumerate() {
            let message = sorter.message(*server, 0, weight(name, None, None), Ask::default);
            message.items.push(AllocatedItem { name, from: *from });
            message.numbers.push(number);
        }
        let mut jobs = sorter.jobs();
        self.fan_out(&self.table(), &mut jobs, false)
            .map_err(|(_, e)| e)?;
        let mut found = vec![Allocated::default(); chunks.len()];
        for message in jobs.iter().flat_map(|job| &job.messages) {
            for (&number, &one) in message.numbers.iter().zip(&message.found) {
                found[number] = one;
            }
        }
        Ok(found)
    }
}

/// The chunks of one message.
#[derive(Default)]
struct Ask<'a> {
    items: Vec<AllocatedItem<&'a ChunkName>>,
    /// The caller's number of each.
    numbers: Vec<usize>,
    found: Vec<Allocated>,
    failed: Option<Failure>,
}

impl<'a> Message<'a> for Ask<'a> {
    fn first(&self) -> usize {
        self.numbers.first().copied().unwrap_or(0)
    }

    fn bytes(&self) -> u64 {
        0
    }

    fn request(&self, _: Asker) -> WireResult<Request<'a>> {
        Ok(Request {
            kind: kind::ALLOCATED,
            control: encode(&self.items)?,
            payload: SmallVec::new(),
            made: Vec::new(),
        })
    }

    fn take(&mut self, control: &[u8], incoming: &mut Incoming<'_>) -> WireResult<()> {
        self.failed = None;
        match decode::<Answer<Vec<Allocated>>>(control, incoming)? {
            Ok(found) if found.len() == self.items.len() => self.found = found,
            Ok(found) => {
                let (found, asked) = (found.len(), self.items.len());
                return Err(incoming.protocol(format!("{found} answers to {asked} items")));
            }
            Err(error) => self.failed = Some((self.first(), error)),
        }
        Ok(())
    }

    fn verdict(&mut self) -> Result<(), Failure> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn local(&mut self, store: &dyn ChunkStore) -> Result<(), Failure> {
        let found = self
            .items
            .iter()
            .map(|item| store.allocated(item.name, item.from))
            .collect::<Result<_>>();
        self.found = found.map_err(|error| (self.first(), error))?;
        Ok(())
    }
}

//! The data server: requests over its socket, each with a control part and a payload of the fuzzer's. Every
//! request is answered, and the server continues.
//!
//! A request is a byte for its kind, two bytes for the length of its control part and two for that of its
//! payload (little-endian), and these two parts.

use std::cell::RefCell;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::scratch;
use slabfs_objstore::Addr;
use slabfs_objstore::server::DataServer;
use slabfs_objstore::store::{LocalOptions, LocalStore};
use slabfs_objstore::wire::messages::{
    Answer, BatchFound, BatchRequests, BatchWrites, BlankItem, Blanks, BySession, ClipItem,
    FilledItem, ListQuery, Listing, Outcome, ReadItem, ReadReply, SameHostFiles, SealItem,
    SpaceAnswer, Wipe, WriteItem, kind,
};
use slabfs_objstore::wire::{Buffers, Connection, Listener, REPLY};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(20);
/// A store is used for this many inputs, so that their chunks do not fill the disk.
const INPUTS: u32 = 500;

struct Rig {
    inputs: u32,
    connection: Connection,
    /// The id of the last request; ids increase.
    last: u64,
    buffers: Buffers,
    server: Option<DataServer>,
    _dir: TempDir,
}

impl Rig {
    fn new() -> Self {
        let dir = scratch();
        let options = LocalOptions {
            fsync: false,
            ..LocalOptions::default()
        };
        let store = LocalStore::open(&dir.path().join("store"), options).expect("a store");
        let addr = Addr::Unix(dir.path().join("socket"));
        let listener = Listener::bind(&addr, None).expect("a socket");
        let server = DataServer::start(Arc::new(store), listener).expect("a server");
        let connection =
            Connection::connect(&addr, None, Instant::now() + PATIENCE).expect("a connection");
        Self {
            inputs: 0,
            connection,
            last: 0,
            buffers: Buffers::default(),
            server: Some(server),
            _dir: dir,
        }
    }

    fn ask(&mut self, kind: u16, control: &[u8], payload: &[u8]) {
        let until = Instant::now() + PATIENCE;
        self.last += 1;
        let payload = [IoSlice::new(payload)];
        self.connection
            .send(kind, self.last, control, &payload, until)
            .expect("sent");
        let frame = self
            .connection
            .recv(&mut self.buffers, until, PATIENCE)
            .expect("an answer");
        if frame.kind == kind | REPLY {
            decode(kind, frame.control);
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
        }
    }
}

/// A client must be able to read the reply.
fn decode(kind: u16, control: &[u8]) {
    let read = match kind {
        kind::READ => postcard::from_bytes::<ReadReply>(control).map(|_| ()),
        kind::SPACE => postcard::from_bytes::<SpaceAnswer>(control).map(|_| ()),
        kind::LIST => postcard::from_bytes::<Answer<Listing>>(control).map(|_| ()),
        kind::BLANKS => postcard::from_bytes::<Answer<Blanks>>(control).map(|_| ()),
        kind::SAME_HOST_FILES => postcard::from_bytes::<Answer<SameHostFiles>>(control).map(|_| ()),
        kind::READ_BATCH => postcard::from_bytes::<Answer<Vec<BatchFound>>>(control).map(|_| ()),
        _ => postcard::from_bytes::<Outcome>(control).map(|_| ()),
    };
    read.expect("a readable reply");
}

thread_local! {
    static RIG: RefCell<Rig> = RefCell::new(Rig::new());
}

fn field<'a>(data: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (head, tail) = data.split_at_checked(len)?;
    *data = tail;
    Some(head)
}

fn number(data: &mut &[u8]) -> Option<usize> {
    let bytes = field(data, 2)?;
    Some(usize::from(bytes[0]) | usize::from(bytes[1]) << 8)
}

/// Runs one input.
pub fn run(data: &[u8]) {
    // As a client reads them, and as a server does.
    let _ = postcard::from_bytes::<ReadReply>(data);
    let _ = postcard::from_bytes::<Outcome>(data);
    let _ = postcard::from_bytes::<Answer<Listing>>(data);
    let _ = postcard::from_bytes::<Answer<Blanks>>(data);
    let _ = postcard::from_bytes::<Answer<SameHostFiles>>(data);
    let _ = postcard::from_bytes::<Vec<BlankItem>>(data);
    let _ = postcard::from_bytes::<Vec<FilledItem>>(data);
    let _ = postcard::from_bytes::<Vec<ReadItem>>(data);
    let _ = postcard::from_bytes::<BatchRequests>(data)
        .map(|requests| requests.0.iter().for_each(|one| drop(one.batch.plan())));
    let _ = postcard::from_bytes::<BySession<BatchWrites>>(data);
    let _ = postcard::from_bytes::<BySession<Vec<WriteItem>>>(data);
    let _ = postcard::from_bytes::<Vec<SealItem>>(data);
    let _ = postcard::from_bytes::<BySession<Vec<ClipItem>>>(data);
    let _ = postcard::from_bytes::<BySession<Vec<Wipe>>>(data);
    let _ = postcard::from_bytes::<ListQuery>(data);
    RIG.with_borrow_mut(|rig| {
        rig.inputs += 1;
        if rig.inputs > INPUTS {
            *rig = Rig::new();
        }
        let mut rest = data;
        for _ in 0..16 {
            let Some(which) = field(&mut rest, 1) else {
                break;
            };
            let kind = kind::READ + u16::from(which[0]) % 18;
            let (Some(control), Some(payload)) = (number(&mut rest), number(&mut rest)) else {
                break;
            };
            let Some(control) = field(&mut rest, control) else {
                break;
            };
            let Some(payload) = field(&mut rest, payload) else {
                break;
            };
            rig.ask(kind, control, payload);
        }
        // It still answers valid requests.
        rig.ask(kind::SPACE, &[], &[]);
    });
}

//! The size of an object as one mount reports it while another changes it.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use slabfs_fs::client::{Client, ClientOptions, OpenMode};
use slabfs_mdserver::api::{Create, Kind, MdError, Metadata, Op, ROOT, Reply, Request, SetAttr};
use slabfs_mdserver::service::{Service, ServiceOptions};
use slabfs_objstore::client::{Options, Servers};
use slabfs_objstore::server::{Fence, Heart, HeartOptions};
use slabfs_objstore::store::{LocalOptions, LocalStore};

type Look = Box<dyn FnMut() + Send>;

/// A connection to a service in another process, with a callback before and after each request that clears a file.
struct Line {
    service: Arc<Service>,
    look: Mutex<Option<Look>>,
}

impl Line {
    fn look(&self) {
        if let Some(look) = &mut *self.look.lock().unwrap() {
            look();
        }
    }
}

impl Metadata for Line {
    fn call(&self, request: Request) -> Result<Reply, MdError> {
        if !matches!(request.op, Op::Clear(_)) {
            return self.service.call_remote(request);
        }
        self.look();
        let reply = self.service.call_remote(request);
        self.look();
        reply
    }

    fn session_count(&self) -> u32 {
        self.service.session_count()
    }
}

/// Ten bytes are stored, ten more are written and not flushed. When the file is emptied, its size is never ten.
#[test]
fn an_emptied_file_is_not_truncated_to_its_flushed_size_first() {
    let dir = tempfile::tempdir().unwrap();
    let (service, _) = Service::open(&dir.path().join("md"), ServiceOptions::default()).unwrap();
    let service = Arc::new(service);
    let store = LocalStore::open(&dir.path().join("os"), LocalOptions::default()).unwrap();
    let uuid = store.id();
    let store = Arc::new(store);
    let heart = Heart::start(
        store.clone(),
        service.clone(),
        Arc::new(Fence::in_memory()),
        HeartOptions::new(uuid, None),
    )
    .unwrap();
    let id = heart.registered(Duration::from_secs(10)).unwrap();
    let servers = Servers::new(Options::default());
    servers.add_local(id, store.clone());
    let servers = Arc::new(servers);
    let line = || {
        Arc::new(Line {
            service: service.clone(),
            look: Mutex::new(None),
        })
    };
    let (own, others) = (line(), line());
    let client = |line: &Arc<Line>| {
        Client::start(line.clone(), servers.clone(), ClientOptions::default()).unwrap()
    };
    let (writer, reader) = (client(&own), client(&others));

    let mode = OpenMode {
        write: true,
        append: false,
    };
    let file = Create {
        parent: ROOT,
        name: "file".into(),
        kind: Kind::Object,
        mode: 0o644,
        uid: 0,
        gid: 0,
        rdev: 0,
        target: None,
        exclusive: true,
        open: true,
    };
    let (made, handle) = writer.create(file, mode).unwrap();
    let ino = made.entry.attr.ino;
    handle.write(0, &[1; 10]).unwrap();
    handle.flush().unwrap();
    handle.write(10, &[2; 10]).unwrap();
    assert_eq!(reader.getattr(ino).unwrap().attr.size, 20);

    let seen = Arc::new(Mutex::new(Vec::new()));
    *own.look.lock().unwrap() = Some({
        let (seen, reader) = (seen.clone(), reader.clone());
        Box::new(move || {
            let size = reader.getattr(ino).unwrap().attr.size;
            seen.lock().unwrap().push(size);
        })
    });
    let entry = writer.setattr(ino, SetAttr::default(), Some(0)).unwrap();
    *own.look.lock().unwrap() = None;
    assert_eq!(entry.attr.size, 0);
    assert_eq!(reader.getattr(ino).unwrap().attr.size, 0);
    // Before and after the request; no mount has been notified yet that the file is empty.
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|size| [0, 20].contains(size)), "{seen:?}");

    handle.release().unwrap();
    for client in [writer, reader] {
        client.stop().unwrap();
    }
    heart.stop();
    drop(store);
    drop((own, others));
    service.close().unwrap();
}

//! Sessions that are over get nothing any more, and the data servers are told.

use slabfs_model::{ServerId, SessionId};
use slabfs_objstore::server::{Alive, ServerReport};
use slabfs_objstore::store::Space;
use std::sync::Arc;

use super::support::*;
use crate::Service;
use crate::api::{Md, MdError, Permit, ROOT};
use crate::core::Ctx;
use crate::placement;

/// The list of sessions that a data server is told which obeys none.
fn told(service: &Service) -> Alive {
    let space = Space {
        total: 100,
        free: 60,
        used: 40,
    };
    let report = ServerReport {
        uuid: UUID,
        id: None,
        addr: None,
        host: "node1".into(),
        space,
        chunks: 0,
        stored: 0,
        deleted: vec![],
        obeys: 0,
    };
    service.register(report).unwrap().sessions.unwrap()
}

#[test]
fn a_session_of_this_process_that_has_ended_is_refused() {
    let (service, md) = ready();
    let ino = file(&md, "f");
    let other = attach(&service);
    let (ended, lives) = (md.session(), other.session());
    assert_eq!(told(&service).live, [ended, lives]);
    md.detach(true).unwrap();
    // It looks without a lock that everybody takes, so that the end has to be found there too.
    assert_eq!(md.getattr(ino).err(), Some(MdError::SessionLost));
    assert_eq!(md.lookup(ROOT, b"f").err(), Some(MdError::SessionLost));
    assert_eq!(md.unlink(ROOT, b"f").err(), Some(MdError::SessionLost));
    assert_eq!(md.reserve(ino, 10).err(), Some(MdError::SessionLost));
    assert_eq!(md.lease_places(1, vec![]).err(), Some(MdError::SessionLost));
    assert!(md.heartbeat(0).unwrap().lost);
    assert!(other.getattr(ino).is_ok() && !other.heartbeat(0).unwrap().lost);
    let told = told(&service);
    assert_eq!(told.live, [lives]);
    assert!(told.is_over(ended) && !told.is_over(lives));
    // It comes back as another one.
    let session = md.reattach().unwrap().session;
    assert!(session > lives && md.session() == session);
    md.unlink(ROOT, b"f").unwrap();
}

/// A request may be looked over before the end of its session and done after it.
#[test]
fn no_permit_is_given_to_a_session_that_has_ended_meanwhile() {
    let (service, md) = ready();
    let ino = file(&md, "f");
    let ctx = Ctx {
        session: Some(md.session()),
        ..Ctx::SERVICE
    };
    md.detach(true).unwrap();
    for permit in [Permit::Write(1), Permit::Move(1, ServerId(1))] {
        let given = placement::permit(service.core(), &ctx, ino, permit);
        assert_eq!(given.err(), Some(MdError::SessionLost), "{permit:?}");
    }
    // Nobody waits for it.
    let next = attach(&service);
    next.take_permit(ino, Permit::Write(1)).unwrap();
}

#[test]
fn chunks_are_moved_after_a_restart_when_all_servers_know_who_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let uuids = [[1; 16], [2; 16]];
    let beats = |service: &Service, of: &[[u8; 16]]| {
        for &uuid in of {
            beat_of(service, uuid, vec![]);
        }
    };
    let service = service_in(dir.path());
    beats(&service, &uuids);
    let md = attach(&service);
    let ino = file(&md, "f");
    let mover = |md: &Md, number| md.take_permit(ino, Permit::Move(number, ServerId(2)));
    let lost: SessionId = md.session();
    mover(&md, 1).unwrap();
    drop(md);
    service.close().unwrap();
    drop(service);

    let service: Arc<Service> = service_in(dir.path());
    let md = attach(&service);
    assert_ne!(md.session(), lost);
    // The one before may still be copying, for all that the servers know.
    assert_eq!(mover(&md, 1).err(), Some(MdError::Busy));
    beats(&service, &uuids[..1]);
    assert_eq!(mover(&md, 1).err(), Some(MdError::Busy));
    beats(&service, &uuids);
    mover(&md, 1).unwrap();
}

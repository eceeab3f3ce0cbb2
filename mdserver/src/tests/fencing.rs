//! Tests of fencing: ended sessions are refused, and the data servers are notified of their end.

use slabfs_model::{ServerId, SessionId};
use slabfs_objstore::server::{Alive, ServerReport};
use slabfs_objstore::store::Space;
use std::sync::Arc;

use super::support::*;
use crate::Service;
use crate::api::{MdError, Permit, ROOT, Time, op};
use crate::client::Md;
use crate::core::Ctx;
use crate::placement;

/// The list of sessions sent to a data server that has applied none yet.
fn session_list(service: &Service) -> Alive {
    let space = Space {
        total: 100,
        free: 60,
        used: 40,
        disk: None,
    };
    let report = ServerReport {
        memory: false,
        uuid: UUID,
        id: None,
        addr: None,
        host: "node1".into(),
        space,
        chunks: 0,
        stored: 0,
        engine: Vec::new(),
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
    let (ended, alive) = (md.session(), other.session());
    assert_eq!(session_list(&service).live, [ended, alive]);
    md.call(op::Detach { clean: true }).unwrap();
    // Lookups do not take the common lock, so they have to check for the end of the session too.
    assert_eq!(
        md.call(op::GetAttr { ino }).err(),
        Some(MdError::SessionLost)
    );
    assert_eq!(md.lookup(ROOT, b"f").err(), Some(MdError::SessionLost));
    assert_eq!(md.unlink(ROOT, b"f").err(), Some(MdError::SessionLost));
    assert_eq!(md.reserve(ino, 10).err(), Some(MdError::SessionLost));
    assert_eq!(md.lease_places(1, vec![]).err(), Some(MdError::SessionLost));
    assert!(md.heartbeat(0).unwrap().lost);
    assert!(other.call(op::GetAttr { ino }).is_ok() && !other.heartbeat(0).unwrap().lost);
    let list = session_list(&service);
    assert_eq!(list.live, [alive]);
    assert!(list.is_over(ended) && !list.is_over(alive));
    // It reattaches as another session, unless this is another filesystem.
    let root = md.call(op::GetAttr { ino: ROOT });
    assert_eq!(root.err(), Some(MdError::SessionLost));
    let root = other.call(op::GetAttr { ino: ROOT }).unwrap().attr.crtime;
    let live = session_list(&service).live;
    assert!(md.reattach(Time::default()).unwrap().is_none());
    assert_eq!(session_list(&service).live, live);
    assert!(md.heartbeat(0).unwrap().lost);
    let session = md.reattach(root).unwrap().unwrap().session;
    assert!(session > alive && md.session() == session);
    md.unlink(ROOT, b"f").unwrap();
}

/// A request may be checked before the end of its session and executed after it.
#[test]
fn no_permit_is_granted_to_a_session_that_has_ended_meanwhile() {
    let (service, md) = ready();
    let ino = file(&md, "f");
    let ctx = Ctx {
        session: Some(md.session()),
        ..Ctx::SERVICE
    };
    md.call(op::Detach { clean: true }).unwrap();
    for permit in [Permit::Write(1), Permit::Move(1, ServerId(1))] {
        let given = placement::permit(service.core(), &ctx, op::Permit { ino, permit });
        assert_eq!(given.err(), Some(MdError::SessionLost), "{permit:?}");
    }
    // The ended session holds no permit that others would wait for.
    let next = attach(&service);
    next.take_permit(ino, Permit::Write(1)).unwrap();
}

#[test]
fn chunks_are_moved_after_a_restart_when_all_servers_know_the_ended_sessions() {
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
    // The data servers do not know yet that the earlier session ended, so it may still be copying.
    assert_eq!(mover(&md, 1).err(), Some(MdError::Busy));
    beats(&service, &uuids[..1]);
    assert_eq!(mover(&md, 1).err(), Some(MdError::Busy));
    beats(&service, &uuids);
    mover(&md, 1).unwrap();
}

//! Tests of placement: reports of data servers, leased places, and the choice of stripes.

use slabfs_model::{Placement, ServerId};
use slabfs_objstore::server::ServerReport;
use slabfs_objstore::store::Space;

use super::support::*;
use crate::api::{MdError, Permit, ROOT, SpecChange, op};
use crate::service::Service;
use std::sync::Arc;

fn report(service: &Service, uuid: u8, host: &str, stored: u64, free: u64) {
    let space = Space {
        total: 6400,
        free,
        used: 6400 - free,
        disk: None,
    };
    report_space(service, uuid, host, stored, space);
}

fn report_space(service: &Service, uuid: u8, host: &str, stored: u64, space: Space) {
    let report = ServerReport {
        memory: false,
        uuid: [uuid; 16],
        id: None,
        addr: None,
        host: host.to_owned(),
        space,
        chunks: 0,
        stored,
        engine: Vec::new(),
        deleted: vec![],
        obeys: 0,
    };
    service.register(report).unwrap();
}

/// Servers 1 to 3 with 0, 1000 and 2000 bytes, on the machines a, b and b.
fn three() -> (Arc<Service>, crate::client::Md) {
    let service = service();
    report(&service, 1, "a", 0, 6000);
    report(&service, 2, "b", 1000, 6000);
    report(&service, 3, "b", 2000, 6000);
    let md = attach(&service);
    (service, md)
}

#[test]
fn leased_places_balance_the_servers() {
    let (service, md) = three();
    let places = md.lease_places(3000, vec![]).unwrap();
    let dealt = |places: &[(ServerId, u64)]| places.iter().map(|p| p.1).collect::<Vec<_>>();
    assert_eq!(dealt(&places), [2000, 1000, 0]);
    let flying: Vec<u64> = md
        .call(op::Servers {})
        .unwrap()
        .iter()
        .map(|s| s.in_flight)
        .collect();
    assert_eq!(flying, [2000, 1000, 0]);
    // Another session is given places in addition to those.
    let other = attach(&service);
    assert_eq!(
        dealt(&other.lease_places(300, vec![]).unwrap()),
        [100, 100, 100]
    );
    // Unused places are given back.
    let again = md.lease_places(0, vec![(ServerId(1), 500)]).unwrap();
    assert_eq!(dealt(&again), [0, 0, 0]);
    assert_eq!(
        dealt(&other.lease_places(600, vec![]).unwrap()),
        [550, 50, 0]
    );
    other.call(op::Detach { clean: true }).unwrap();
    assert!(
        md.call(op::Servers {})
            .unwrap()
            .iter()
            .all(|server| server.in_flight == 0)
    );
}

#[test]
fn full_and_draining_servers_get_nothing() {
    let (service, md) = three();
    report(&service, 1, "a", 0, 100);
    assert!(md.call(op::Servers {}).unwrap()[0].full);
    let served = |places: Vec<(ServerId, u64)>| places.iter().map(|p| p.0.0).collect::<Vec<_>>();
    assert_eq!(served(md.lease_places(10, vec![]).unwrap()), [2, 3]);
    md.set_draining(ServerId(2), true).unwrap();
    assert_eq!(served(md.lease_places(10, vec![]).unwrap()), [3]);
    assert!(matches!(
        md.set_draining(ServerId(3), true),
        Err(MdError::Invalid(_))
    ));
    assert!(matches!(
        md.set_draining(ServerId(9), true),
        Err(MdError::Invalid(_))
    ));
    let made = info(
        md.call(op::GetAttr {
            ino: file(&md, "f"),
        })
        .unwrap(),
    );
    assert_eq!(made.stripe, [ServerId(3)]);
    md.set_draining(ServerId(2), false).unwrap();
    report(&service, 1, "a", 0, 5000);
    assert_eq!(served(md.lease_places(10, vec![]).unwrap()), [1, 2, 3]);
}

#[test]
fn stripes_follow_placements() {
    let (_service, md) = three();
    let placed = |name: &str, placement| {
        let ino = file(&md, name);
        let change = SpecChange {
            placement: Some(placement),
            ..SpecChange::default()
        };
        md.declare(ino, change, None)
            .map(|entry| info(entry).stripe)
    };
    let ids = |numbers: &[u32]| numbers.iter().copied().map(ServerId).collect::<Vec<_>>();
    assert_eq!(placed("r", Placement::Region), Ok(ids(&[1, 2, 3])));
    assert_eq!(placed("n", Placement::Server(ServerId(2))), Ok(ids(&[2])));
    assert_eq!(
        placed("o", Placement::Object).map(|stripe| stripe.len()),
        Ok(1)
    );
    assert_eq!(
        placed("l", Placement::Local).map(|stripe| stripe.len()),
        Ok(1)
    );
    assert!(matches!(
        placed("x", Placement::Server(ServerId(9))),
        Err(MdError::Invalid(_))
    ));
    // An unknown server is also refused for a grid with data, whose chunks stay where they are.
    let held = file(&md, "h");
    let mut commit = commit_of(&md, held);
    commit.size_at_least = 1000;
    md.call(commit).unwrap();
    let before = md.call(op::GetAttr { ino: held }).unwrap();
    let nowhere = SpecChange {
        placement: Some(Placement::Server(ServerId(9))),
        ..SpecChange::default()
    };
    assert!(matches!(
        md.declare(held, nowhere, None),
        Err(MdError::Invalid(_))
    ));
    assert_eq!(md.call(op::GetAttr { ino: held }).unwrap(), before);
    // The first chunk of a new object goes to the emptiest server. (The next object's goes elsewhere, because data is
    // expected on that server.)
    let (_service, md) = three();
    let ino = file(&md, "d");
    let stripe = info(md.call(op::GetAttr { ino }).unwrap()).stripe;
    let first = slabfs_model::layout::grid::first_of(ino, stripe.len());
    assert_eq!((stripe.len(), stripe[first]), (3, ServerId(1)));
}

#[test]
fn a_grid_moves_only_under_its_permit() {
    let (service, md) = three();
    let ino = file(&md, "f");
    let (from, to) = (ServerId(1), ServerId(3));
    let now = info(md.call(op::GetAttr { ino }).unwrap());
    let moved = || {
        md.call(op::Restripe {
            ino,
            generation: now.generation,
            from,
            to,
        })
    };
    assert_eq!(moved(), Err(MdError::Stale));
    let writer = attach(&service);
    writer.take_permit(ino, Permit::Write(1)).unwrap();
    assert_eq!(md.take_permit(ino, Permit::Move(1, to)), Err(MdError::Busy));
    writer.give_permit(ino, 1).unwrap();
    assert_eq!(writer.give_permit(ino, 1), Err(MdError::Stale));
    md.take_permit(ino, Permit::Move(2, to)).unwrap();
    assert_eq!(
        writer.take_permit(ino, Permit::Write(2)),
        Err(MdError::Busy)
    );
    let before = md.call(op::GetAttr { ino }).unwrap().attr;
    let entry = moved().unwrap();
    assert!(entry.attr.change > before.change && entry.attr.ctime == before.ctime);
    assert!(!info(entry).stripe.contains(&from));
    md.give_permit(ino, 2).unwrap();
    // A move back to a server with a pending order to delete is refused for now.
    assert_eq!(
        md.take_permit(ino, Permit::Move(3, from)),
        Err(MdError::Busy)
    );
    // `ready` requires that all sessions know: the writer does not know yet that the server drains.
    md.set_draining(ServerId(2), true).unwrap();
    let page = |md: &crate::client::Md| {
        md.call(op::Holdings {
            server: ServerId(2),
            after: slabfs_model::ObjectId(0),
        })
        .unwrap()
    };
    assert_eq!((page(&md).objects, page(&md).ready), (vec![ino], false));
    for md in [&md, &writer] {
        let version = md.heartbeat(0).unwrap().servers_version;
        md.heartbeat(version).unwrap();
    }
    assert!(page(&md).ready);
}

#[test]
fn a_named_server_that_drains_gets_nothing_new() {
    let (_service, md) = three();
    let named = SpecChange {
        placement: Some(Placement::Server(ServerId(2))),
        ..SpecChange::default()
    };
    let before = file(&md, "before");
    md.declare(before, named.clone(), None).unwrap();
    assert_eq!(
        info(md.call(op::GetAttr { ino: before }).unwrap()).stripe,
        [ServerId(2)]
    );
    md.set_draining(ServerId(2), true).unwrap();
    let after = file(&md, "after");
    let elsewhere = |ino| {
        let now = info(md.call(op::GetAttr { ino }).unwrap());
        assert_eq!(now.placement, Placement::Server(ServerId(2)));
        assert_eq!(now.stripe.len(), 1);
        assert_ne!(now.stripe, [ServerId(2)]);
    };
    md.declare(after, named.clone(), None).unwrap();
    elsewhere(after);
    let spare = md.call(op::SpareGeneration {
        ino: before,
        placement: Placement::Server(ServerId(2)),
    });
    assert!(!spare.unwrap().stripe.contains(&ServerId(2)));
    // After draining is cancelled the server gets new objects again.
    md.set_draining(ServerId(2), false).unwrap();
    let later = file(&md, "later");
    md.declare(later, named, None).unwrap();
    assert_eq!(
        info(md.call(op::GetAttr { ino: later }).unwrap()).stripe,
        [ServerId(2)]
    );
}

#[test]
fn a_refused_permit_is_not_held() {
    let (_service, md) = three();
    let gone = file(&md, "f");
    md.unlink(ROOT, b"f").unwrap();
    for (number, ino) in [(1, gone), (2, ROOT)] {
        md.take_permit(ino, Permit::Write(number)).unwrap_err();
        assert_eq!(md.give_permit(ino, number), Err(MdError::Stale));
    }
    md.take_permit(gone, Permit::Move(3, ServerId(3)))
        .unwrap_err();
    assert_eq!(md.give_permit(gone, 3), Err(MdError::Stale));
}

#[test]
fn a_server_with_chunks_of_other_metadata_is_refused() {
    let service = service();
    let report = |uuid: u8, id: Option<ServerId>, chunks: u64| ServerReport {
        memory: false,
        uuid: [uuid; 16],
        id,
        addr: Some("unix:os".to_owned()),
        host: "a".to_owned(),
        space: Space {
            total: 100,
            free: 60,
            used: 40,
            disk: None,
        },
        chunks,
        stored: chunks * 10,
        engine: Vec::new(),
        deleted: vec![],
        obeys: 0,
    };
    // Chunks, or the server id of other metadata, identify a foreign server.
    for foreign in [report(1, None, 2), report(1, Some(ServerId(1)), 0)] {
        let Err(MdError::Invalid(why)) = service.register(foreign) else {
            panic!("taken");
        };
        assert!(why.contains("of other metadata"), "{why}");
    }
    assert!(attach(&service).call(op::Servers {}).unwrap().is_empty());
    // An empty server is accepted, and is known from then on.
    let id = service.register(report(2, None, 0)).unwrap().id;
    assert_eq!(id, ServerId(1));
    assert_eq!(service.register(report(2, None, 7)).unwrap().id, id);
    assert_eq!(service.register(report(2, Some(id), 7)).unwrap().id, id);
}

#[test]
fn a_disk_of_several_servers_counts_once() {
    let service = service();
    for (uuid, host, disk) in [
        (1, "a", Some(7)),
        (2, "a", Some(7)),
        (3, "b", Some(7)),
        (4, "b", None),
        (5, "b", None),
    ] {
        let space = Space {
            total: 100,
            free: 60,
            used: 40,
            disk,
        };
        report_space(&service, uuid, host, 0, space);
    }
    let totals = attach(&service).call(op::StatFs {}).unwrap();
    assert_eq!((totals.total, totals.free, totals.used), (400, 240, 160));
}

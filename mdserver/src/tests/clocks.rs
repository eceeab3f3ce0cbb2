//! Tests with a clock that jumps, while the service runs and between two runs: timestamps follow the clock, and nothing
//! else depends on it.

use std::sync::Arc;

use super::support::*;
use crate::Service;
use crate::api::{Kind, MdError, ROOT, RenameFlags, SetAttr, SetTime, Time, XattrFlags, op};

const YEAR: i64 = 365 * 86_400;

#[test]
fn jumps_change_times_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let service = service_in(dir.path());
    beat(&service, vec![]);
    let mut service = service;
    let mut md = attach(&service);
    let ino = array(&md, "a", &[8, 8]);
    let mut change = md.call(op::GetAttr { ino }).unwrap().attr.change;
    let jumps = [-10 * YEAR, 100 * YEAR, -80 * YEAR, 10_000 * YEAR, -1, 0];
    for (round, jump) in jumps.into_iter().enumerate() {
        Time::jump(jump);
        let now = Time::now();
        put(&md, ino, &[0, 0], &[8, 4]).unwrap();
        let attr = md.call(op::GetAttr { ino }).unwrap().attr;
        assert!(
            attr.mtime >= now && attr.mtime.sec < now.sec + 60,
            "{attr:?}"
        );
        assert!(attr.ctime >= now && attr.ctime.sec < now.sec + 60);
        // The change counter, by which caches are validated, does not depend on the clock.
        assert!(attr.change > change);
        md.setxattr(ino, b"user.round", &[round as u8], XattrFlags::Either)
            .unwrap();
        let set = SetAttr {
            mtime: Some(SetTime::Now),
            ..SetAttr::default()
        };
        md.setattr(ino, set).unwrap();
        let name = format!("name-{round}");
        md.call(new(ROOT, &name, Kind::Object)).unwrap();
        md.rename(
            ROOT,
            name.as_bytes(),
            ROOT,
            b"renamed",
            RenameFlags::default(),
        )
        .unwrap();
        // Neither a session nor a data server is declared dead because of the jump.
        service.settle_down().unwrap();
        assert!(md.call(op::Servers {}).unwrap()[0].online);
        md.lookup(ROOT, b"renamed").unwrap();
        let before = md.call(op::GetAttr { ino }).unwrap();
        drop(md);
        service.close().unwrap();
        drop(service);
        let (again, _) = Service::open(dir.path(), quiet()).unwrap();
        service = Arc::new(again);
        beat(&service, vec![]);
        md = attach(&service);
        assert_eq!(md.call(op::GetAttr { ino }).unwrap(), before);
        assert_eq!(md.getxattr(ino, b"user.round").unwrap(), [round as u8]);
        assert!(matches!(
            md.lookup(ROOT, name.as_bytes()),
            Err(MdError::NotFound)
        ));
        change = before.attr.change;
    }
    Time::jump(0);
    drop(md);
    service.close().unwrap();
}

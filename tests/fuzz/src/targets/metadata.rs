//! The metadata service: requests in postcard, one after the other, of an attached session; and replies. A
//! refused request changes nothing, so the service continues to answer.

use std::time::Duration;

use slabfs_mdserver::api::{MdError, Op, ROOT, Reply, Request, RightsBegun, RightsEpoch, op};
use slabfs_mdserver::kv::MemoryKv;
use slabfs_mdserver::{Service, ServiceOptions};
use slabfs_model::SessionId;

/// The most requests of one run.
const MOST: usize = 64;

fn request(session: SessionId, seq: u64, op: Op) -> Request {
    Request {
        session,
        seq,
        done_below: 0,
        op,
    }
}

/// Sets the epoch of a request about rights to the session's, and its wait time to 0.
fn begin(op: &mut Op, begun: Option<RightsBegun>) {
    match op {
        Op::AskRight(op::AskRight { epoch, .. })
        | Op::CancelRight(op::CancelRight { epoch, .. })
        | Op::GiveRights(op::GiveRights { epoch, .. }) => {
            *epoch = begun.map_or(RightsEpoch::UNKNOWN, |begun| begun.epoch);
        }
        Op::RightEvents(op::RightEvents { epoch, wait_ms, .. }) => {
            *epoch = begun.map_or(RightsEpoch::UNKNOWN, |begun| begun.epoch);
            *wait_ms = 0;
        }
        _ => {}
    }
}

/// Runs one input.
pub fn run(data: &[u8]) {
    let _ = postcard::take_from_bytes::<(u32, Result<Reply, MdError>)>(data);
    let options = ServiceOptions {
        upkeep: Duration::from_secs(3600),
        silence: Duration::from_secs(3600),
        lease: Duration::from_secs(3600),
        ..ServiceOptions::default()
    };
    let (service, _) = Service::over(Box::new(MemoryKv::new()), options).expect("an empty store");
    let attach = Op::Attach(op::Attach {
        host: "here".to_owned(),
        pid: 1,
        read_only: false,
        strict: true,
    });
    let reply = service.call_remote(request(SessionId(0), 0, attach));
    let Ok(Reply::Attached(attached)) = reply else {
        panic!("not attached: {reply:?}");
    };
    let (remote, mut rest) = match data.split_first() {
        Some((first, rest)) => (first & 1 == 0, rest),
        None => return,
    };
    for seq in 1..=MOST {
        let Ok((mut asked, left)) = postcard::take_from_bytes::<Request>(rest) else {
            break;
        };
        rest = left;
        // Mostly valid for the session; a foreign session or number now and then.
        if asked.session.0 < 0x70 {
            asked.session = attached.session;
            asked.seq = seq as u64;
            asked.done_below = 0;
        }
        begin(&mut asked.op, attached.rights);
        let detached = matches!(asked.op, Op::Detach(_)) && asked.session == attached.session;
        let result = match remote {
            true => service.call_remote(asked),
            false => service.call(asked),
        };
        let bytes = postcard::to_allocvec(&result).expect("a reply can be sent");
        let again: Result<Reply, MdError> = postcard::from_bytes(&bytes).expect("and read");
        assert_eq!(again, result);
        if detached {
            break;
        }
    }
    service.settle_down().expect("the service continues");
    let asked = Op::GetAttr(op::GetAttr { ino: ROOT });
    let attach = Op::Attach(op::Attach {
        host: "there".to_owned(),
        pid: 2,
        read_only: true,
        strict: false,
    });
    let reply = service.call(request(SessionId(0), 0, attach));
    let Ok(Reply::Attached(attached)) = reply else {
        panic!("not attached: {reply:?}");
    };
    let reply = service.call(request(attached.session, 0, asked));
    assert!(matches!(reply, Ok(Reply::Entry(_))), "{reply:?}");
    service.close().expect("it closes");
}

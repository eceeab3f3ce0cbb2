//! Checks sessions and their records: leases, cached replies, opens; and unlinked inodes.

use super::chunks::LeasedPart;
use super::{CheckError, Class, Facts, PAGE, SMALL_PAGE, Walk, counters, inodes};
use crate::api::Reply;
use crate::keys;
use crate::records::{LeaseRecord, SessionRecord};

/// The most ids in one record of a lease.
const PART: u32 = 1024;

/// Reads sessions, leases, replies, opens and unlinked inodes.
pub(super) fn read(walk: &mut Walk<'_>, facts: &mut Facts) -> Result<(), CheckError> {
    walk.each(keys::sessions(), PAGE, |walk, key, value| {
        facts.census.sessions += 1;
        let Some([session]) = walk.numbers(key, [8]) else {
            return Ok(());
        };
        counters::below(walk, facts.limits.session, session, || {
            format!("session {session}")
        });
        // Also if the record cannot be read (which is reported): records that belong to it have an owner.
        facts.sessions.insert(session);
        walk.record::<SessionRecord>(key, value);
        Ok(())
    })?;
    walk.each(keys::table(b'e'), PAGE, |walk, key, value| {
        let numbers = walk.numbers(key, [8, 8]);
        let part = walk.record::<LeaseRecord>(key, value);
        if let (Some([session, first]), Some(part)) = (numbers, part) {
            owned(walk, facts, session, key);
            lease(walk, facts, key, first, part);
        }
        Ok(())
    })?;
    walk.each(keys::table(b'r'), SMALL_PAGE, |walk, key, value| {
        if let Some([session, _]) = walk.numbers(key, [8, 8]) {
            owned(walk, facts, session, key);
            walk.record::<Reply>(key, value);
        }
        Ok(())
    })?;
    walk.each(keys::opens(), PAGE, |walk, key, value| {
        let numbers = walk.numbers(key, [8, 8]);
        let count = walk.record::<u32>(key, value);
        let (Some([session, ino]), Some(count)) = (numbers, count) else {
            return Ok(());
        };
        owned(walk, facts, session, key);
        inodes::of(walk, facts, ino, (Class::Session, key));
        if count == 0 {
            walk.report_key(Class::Session, key, "has a count of zero");
        }
        Ok(())
    })?;
    walk.each(keys::orphans(), PAGE, |walk, key, _| {
        let Some([ino]) = walk.numbers(key, [8]) else {
            return Ok(());
        };
        if let Some(row) = inodes::of(walk, facts, ino, (Class::Orphan, key)) {
            row.orphan = true;
        }
        Ok(())
    })
}

/// Checks that the session to which a record belongs exists.
fn owned(walk: &mut Walk<'_>, facts: &Facts, session: u64, key: &[u8]) {
    if !facts.sessions.contains(&session) {
        walk.report_key(
            Class::Session,
            key,
            format!("session {session} does not exist"),
        );
    }
}

fn lease(walk: &mut Walk<'_>, facts: &mut Facts, key: &[u8], first: u64, part: LeaseRecord) {
    let LeaseRecord { count, used } = part;
    let Some(end) = first
        .checked_add(count.into())
        .filter(|_| (1..=PART).contains(&count) && used.len() == count.div_ceil(64) as usize)
    else {
        walk.report_key(
            Class::Session,
            key,
            format!("a lease of {count} ids with {} words of bits", used.len()),
        );
        return;
    };
    counters::below(walk, facts.limits.chunk, end - 1, || keys::describe(key));
    facts.leased.push(LeasedPart { first, count, used });
}

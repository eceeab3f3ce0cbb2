//! Queries: any text is either a query that is equal after printing and parsing, or an error whose position
//! lies within it.

use super::super::Thing;
use slabfs_mdserver::tags::query::Query;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match Query::parse(text) {
        Ok(query) => {
            let shown = query.to_string();
            assert_eq!(Query::parse(&shown).as_ref(), Ok(&query), "{shown}");
            query.matches(&Thing::default());
            query.access();
        }
        Err(error) => {
            assert!(text.get(error.span.clone()).is_some());
            assert_eq!(error.to_string().lines().count(), 3);
        }
    }
}

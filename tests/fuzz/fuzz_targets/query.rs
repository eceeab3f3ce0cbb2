//! Queries: any text is either a query that is equal after printing and parsing, or an error whose position
//! lies within it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use slabfs_fuzz::Thing;
use slabfs_mdserver::tags::query::Query;

fuzz_target!(|text: &str| {
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
});

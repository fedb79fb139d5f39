//! Any bytes as a server's reply: results are its end, errors have words, and nothing panics.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use raddle_rpc_core::reply::{CallError, Reply};

fuzz_target!(|data: &[u8]| {
    let record = Bytes::copy_from_slice(data);
    let parsed = Reply::parse(&record);
    match &parsed {
        Ok(reply) => {
            // XID, type, accepted; a verifier's flavour and length; the status.
            assert!(record.len() - reply.results.len() >= 24);
            assert!(record.ends_with(&reply.results));
            assert_eq!(reply.results.len() % 4, record.len() % 4);
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            // Errors of the client's own are none of a reply.
            let own = matches!(
                error,
                CallError::Lost(_) | CallError::Ended | CallError::TooLong { .. }
            );
            assert!(!own);
        }
    }
    // What is cut off is never more than the whole.
    let cut = Reply::parse(&record.slice(..record.len() / 2));
    if let (Ok(cut), Err(error)) = (&cut, Reply::parse(&record)) {
        panic!(
            "{} bytes of results, and of the whole: {error}",
            cut.results.len()
        );
    }
});

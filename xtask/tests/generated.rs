//! Files that are made from the code are what comes out of it.
#![allow(clippy::unwrap_used, reason = "a test's helpers may panic")]

#[test]
fn files_are_what_is_generated() {
    for (path, text) in xtask::generated().unwrap() {
        let now = std::fs::read_to_string(xtask::root().join(path)).unwrap();
        assert!(
            now == text,
            "{path} is not what the code says: run `cargo xtask generate`"
        );
    }
}

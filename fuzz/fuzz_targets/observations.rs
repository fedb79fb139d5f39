//! Any text as observations of a router: what is refused is said with its place, and with what is read seeds can be tried.
#![no_main]

use libfuzzer_sys::fuzz_target;
use raddle_config::File;
use raddle_key_search::{Found, Observations, Router, Search};

fuzz_target!(|text: &str| {
    let file = File::new("seen.toml", text);
    if let Ok(router) = Router::of(&file) {
        let mut routes = router.routes().iter();
        assert!(routes.all(|route| route.paths.len() > 1));
    }
    let observations = match Observations::of(&file) {
        Ok(observations) => observations.into_inner(),
        Err(error) => {
            assert!(error.to_string().contains("seen.toml"));
            if let Some(place) = error.place() {
                assert!((1..=text.lines().count() + 1).contains(&place.line));
            }
            return;
        }
    };
    let each = observations.iter().map(|one| one.share());
    assert!(each.into_iter().all(|share| share > 0.0 && share <= 1.0));
    let found = Search::new(observations)
        .among(1..100)
        .with_threads(1)
        .run(|_| true);
    assert!(found != Found::Ended);
});

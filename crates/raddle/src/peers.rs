//! What becomes of a flow at other routers, whose seed was found by what they do.

use std::fmt;
use std::path::PathBuf;

use raddle_config::File;
use raddle_explain::{Answer, FlowWords};
use raddle_key_search::Router;
use raddle_text::outside::shown_in_line;
use serde::Serialize;

use crate::error::Failure;

/// Routers, each with the name of its file.
pub(crate) struct Peers(Vec<(String, Router)>);

/// Reads what is known of routers; each has the name of its file.
pub(crate) fn read(files: &[PathBuf]) -> Result<Vec<(String, Router)>, Failure> {
    let read = |file: &PathBuf| {
        let text = File::read(file).map_err(|e| match e {
            raddle_config::Error::Read { path, source } => Failure::usage(format!(
                "cannot read what is known of the router, {}: {source}; raddle key find --out writes such files",
                path.display()
            )),
            other => other.into(),
        })?;
        let name = shown_in_line(&file.display().to_string()).into_owned();
        Ok((name, Router::of(&text)?))
    };
    files.iter().map(read).collect()
}

/// What a router does with a flow.
#[derive(Serialize)]
pub(crate) struct Peer {
    /// The file that it is written down in.
    router: String,
    /// The link that the flow takes.
    link: Option<String>,
    /// Of so many paths.
    #[serde(skip_serializing_if = "Option::is_none")]
    paths: Option<usize>,
    /// Why none is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Peers {
    /// Reads the files.
    pub(crate) fn read(files: &[PathBuf]) -> Result<Peers, Failure> {
        read(files).map(Peers)
    }

    /// What they do with a flow, which has the source of its answer where it names none.
    pub(crate) fn of(&self, words: &FlowWords, answer: &Answer) -> Vec<Peer> {
        let mut words = words.clone();
        if words.src.is_unspecified()
            && let Some(source) = answer.source
        {
            words.src = source;
        }
        self.0
            .iter()
            .map(|(name, router)| peer(name, router, &words))
            .collect()
    }
}

fn peer(name: &str, router: &Router, words: &FlowWords) -> Peer {
    let unknown = |why: String| Peer {
        router: name.to_owned(),
        link: None,
        paths: None,
        why: Some(why),
    };
    if words.src.is_unspecified() {
        return unknown("the source of the flow is not known: say from SRC".to_owned());
    }
    let Some(route) = router.route_to(words.dst) else {
        return unknown(format!("it has no route to {}", words.dst));
    };
    match words.flow().and_then(|flow| router.link_of(&flow)) {
        Some(link) => Peer {
            router: name.to_owned(),
            link: Some(link.to_owned()),
            paths: Some(route.paths.len()),
            why: None,
        },
        None => unknown("none of its paths takes the flow".to_owned()),
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.link, self.paths, &self.why) {
            (Some(link), Some(paths), _) => {
                writeln!(out, "   at {}: {link}, of {paths} paths", self.router)
            }
            (_, _, why) => {
                let why = why.as_deref().unwrap_or_default();
                writeln!(out, "   at {}: not known, {why}", self.router)
            }
        }
    }
}

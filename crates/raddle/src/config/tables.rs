//! Tables of the configuration that may stand there several times, and what looks like them.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// What a key is to hold, for who writes something else.
struct Tables<T>(&'static str, PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Tables<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element()? {
            all.push(one);
        }
        Ok(all)
    }
}

/// `[[sid]]`.
pub(super) fn sid<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    d: D,
) -> Result<Vec<T>, D::Error> {
    let want = "a table [[sid]] for each SID (sids = N is how many to make room for)";
    d.deserialize_seq(Tables(want, PhantomData))
}

/// `[[encap]]`.
pub(super) fn encap<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    d: D,
) -> Result<Vec<T>, D::Error> {
    d.deserialize_seq(Tables(
        "a table [[encap]] for each encapsulation",
        PhantomData,
    ))
}

/// `sids`, a number beside `[[sid]]`.
pub(super) fn sids<'de, D: Deserializer<'de>>(d: D) -> Result<usize, D::Error> {
    struct Room;
    impl<'de> Visitor<'de> for Room {
        type Value = usize;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number, how many SIDs and encapsulations to make room for; a SID is a table [[sid]]")
        }

        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<usize, E> {
            let wrong = || E::invalid_value(serde::de::Unexpected::Signed(number), &self);
            usize::try_from(number).map_err(|_| wrong())
        }

        // So that they are answered in the words above, and not in those of the parser.
        fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<usize, A::Error> {
            Err(serde::de::Error::invalid_type(
                serde::de::Unexpected::Seq,
                &self,
            ))
        }

        fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<usize, A::Error> {
            Err(serde::de::Error::invalid_type(
                serde::de::Unexpected::Map,
                &self,
            ))
        }
    }
    d.deserialize_any(Room)
}

/// How much alike a key that nobody knows and one that is known have to be, from 0 to 1.
const ALIKE: f64 = 0.85;

/// The key that was meant where an error is about one that nobody knows.
pub(super) fn meant(error: &str) -> Option<&str> {
    let (_, rest) = error.split_once("unknown field `")?;
    let (unknown, rest) = rest.split_once('`')?;
    let known = rest.split('`').skip(1).step_by(2);
    let rated = known.map(|name| (strsim::jaro_winkler(unknown, name), name));
    let (alike, name) = rated.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (alike >= ALIKE).then_some(name)
}

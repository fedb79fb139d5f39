//! Lists of the configuration, and what looks like them, each with words of its own for who writes something else.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Unexpected, Visitor};

/// What a key is to hold, for who writes something else.
struct List<T>(&'static str, PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for List<T> {
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
    d.deserialize_seq(List(want, PhantomData))
}

/// `[[encap]]`.
pub(super) fn encap<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    d: D,
) -> Result<Vec<T>, D::Error> {
    d.deserialize_seq(List(
        "a table [[encap]] for each encapsulation",
        PhantomData,
    ))
}

/// `sids`, a number beside `[[sid]]`.
#[derive(Debug)]
pub(super) struct Sids(pub usize);

impl<'de> Deserialize<'de> for Sids {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Sids, D::Error> {
        struct Room;
        impl Visitor<'_> for Room {
            type Value = Sids;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a number, how many SIDs and encapsulations to make room for; a SID is a table [[sid]]",
                )
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Sids, E> {
                let wrong = || E::invalid_value(Unexpected::Signed(number), &self);
                usize::try_from(number).map(Sids).map_err(|_| wrong())
            }
        }
        d.deserialize_any(Room)
    }
}

/// A list of names, with an example for who writes something else.
pub(super) fn links<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    let want = "a list of links, such as [\"eth0\", \"eth1\"]";
    d.deserialize_seq(List(want, PhantomData))
}

/// As [`links`], but not empty: whether that meant all or none would be a guess.
pub(super) fn some_links<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<String>, D::Error> {
    let names = links(d)?;
    if names.is_empty() {
        let why = "it names no link; leave it out to forward from all suitable links";
        return Err(Error::custom(why));
    }
    Ok(names)
}

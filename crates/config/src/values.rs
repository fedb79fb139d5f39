//! Kinds of values that several configurations have.

use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;

use serde::de::{
    Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor, value,
};

/// An address with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

const ADDRESS: &str = "ADDRESS:PORT, such as \"127.0.0.1:1234\"; names are not looked up";

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Address, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Address;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "an {ADDRESS}")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Address, E> {
                let address = text.parse().map(Address);
                address.map_err(|_| E::custom(format_args!("'{text}' is no {ADDRESS}")))
            }
        }
        d.deserialize_str(Text)
    }
}

/// A whole number with bounds of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Within<const LEAST: u32, const MOST: u32>(pub u32);

impl<'de, const LEAST: u32, const MOST: u32> Deserialize<'de> for Within<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Number<const LEAST: u32, const MOST: u32>;
        impl<const LEAST: u32, const MOST: u32> Visitor<'_> for Number<LEAST, MOST> {
            type Value = Within<LEAST, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a whole number from {LEAST} to {MOST}")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
                match u32::try_from(number) {
                    Ok(number) if (LEAST..=MOST).contains(&number) => Ok(Within(number)),
                    _ => Err(E::invalid_value(Unexpected::Signed(number), &self)),
                }
            }
        }
        d.deserialize_u32(Number)
    }
}

/// One value, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrMore<T>(pub Vec<T>);

impl<T> Default for OneOrMore<T> {
    fn default() -> OneOrMore<T> {
        OneOrMore(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<OneOrMore<T>, D::Error> {
        fn one<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
            d: D,
        ) -> Result<OneOrMore<T>, D::Error> {
            T::deserialize(d).map(|one| OneOrMore(vec![one]))
        }
        struct Either<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OneOrMore<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text in quotes, or a list of such texts")
            }

            // What is of another kind is refused by `T`, which says what its form is.
            fn visit_str<E: Error>(self, text: &str) -> Result<OneOrMore<T>, E> {
                one(value::StrDeserializer::new(text))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<OneOrMore<T>, E> {
                one(value::I64Deserializer::new(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<OneOrMore<T>, E> {
                one(value::U64Deserializer::new(number))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<OneOrMore<T>, E> {
                one(value::F64Deserializer::new(number))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<OneOrMore<T>, E> {
                one(value::BoolDeserializer::new(value))
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<OneOrMore<T>, A::Error> {
                one(value::MapAccessDeserializer::new(table))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMore<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    all.push(one);
                }
                Ok(OneOrMore(all))
            }
        }
        d.deserialize_any(Either(PhantomData))
    }
}

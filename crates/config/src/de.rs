//! Values of a file for serde. `toml`'s own deserializer makes one text of whatever is wrong; this one keeps what serde knows
//! (which key, which words there are, what was expected), and every mistake has the place of the innermost value or key.

use std::fmt;
use std::ops::Range;

use serde::de::value::SeqDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, Error, Expected, IntoDeserializer, MapAccess, Unexpected,
    Visitor,
};
use serde_spanned::de::{SpannedDeserializer, is_spanned};
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::Mistake;

/// A mistake, and its place.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub mistake: Mistake,
    pub span: Option<Range<usize>>,
    /// The innermost key whose value it is in.
    pub key: Option<String>,
}

impl Wrong {
    fn or_at(mut self, span: &Option<Range<usize>>) -> Wrong {
        self.span = self.span.or_else(|| span.clone());
        self
    }

    fn or_under(mut self, key: String) -> Wrong {
        self.key.get_or_insert(key);
        self
    }
}

impl From<Mistake> for Wrong {
    fn from(mistake: Mistake) -> Wrong {
        Wrong {
            mistake,
            span: None,
            key: None,
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.mistake.fmt(f)
    }
}

impl std::error::Error for Wrong {}

impl Error for Wrong {
    fn custom<T: fmt::Display>(said: T) -> Wrong {
        Mistake::Value(said.to_string()).into()
    }

    fn invalid_type(is: Unexpected<'_>, wanted: &dyn Expected) -> Wrong {
        Mistake::kind(is, wanted).into()
    }

    fn invalid_value(is: Unexpected<'_>, wanted: &dyn Expected) -> Wrong {
        Mistake::kind(is, wanted).into()
    }

    fn unknown_variant(word: &str, known: &'static [&'static str]) -> Wrong {
        let word = word.to_owned();
        Mistake::UnknownWord { word, known }.into()
    }

    fn unknown_field(key: &str, known: &'static [&'static str]) -> Wrong {
        let key = key.to_owned();
        Mistake::UnknownKey { key, known }.into()
    }

    fn missing_field(key: &'static str) -> Wrong {
        Mistake::MissingKey(key).into()
    }
}

/// A value of the file.
pub(crate) struct Value<'de> {
    value: DeValue<'de>,
    /// None for the whole file.
    span: Option<Range<usize>>,
}

impl<'de> Value<'de> {
    /// The whole file.
    pub(crate) fn whole(table: DeTable<'de>) -> Value<'de> {
        Value {
            value: DeValue::Table(table),
            span: None,
        }
    }
}

impl<'de> From<Spanned<DeValue<'de>>> for Value<'de> {
    fn from(value: Spanned<DeValue<'de>>) -> Value<'de> {
        Value {
            span: Some(value.span()),
            value: value.into_inner(),
        }
    }
}

/// An integer as far as serde's types go.
fn integer<'de, V: Visitor<'de>>(number: &DeInteger<'_>, visitor: V) -> Result<V::Value, Wrong> {
    let (digits, radix) = (number.as_str(), number.radix());
    match (
        i64::from_str_radix(digits, radix),
        u64::from_str_radix(digits, radix),
    ) {
        (Ok(number), _) => visitor.visit_i64(number),
        (_, Ok(number)) => visitor.visit_u64(number),
        _ => Err(Wrong::invalid_value(Unexpected::Other(digits), &visitor)),
    }
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let Value { value, span } = self;
        let read = match value {
            DeValue::String(text) => visitor.visit_str(&text),
            DeValue::Integer(number) => integer(&number, visitor),
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => Err(Wrong::invalid_value(
                    Unexpected::Other(number.as_str()),
                    &visitor,
                )),
            },
            DeValue::Boolean(value) => visitor.visit_bool(value),
            DeValue::Datetime(_) => Err(Wrong::invalid_type(Unexpected::Other("a date"), &visitor)),
            DeValue::Array(list) => {
                let values = list.into_iter().map(Value::from);
                visitor.visit_seq(SeqDeserializer::new(values))
            }
            DeValue::Table(table) => visitor.visit_map(Entries::of(table)),
        };
        read.map_err(|e| e.or_at(&span))
    }

    /// A key that is there.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let span = self.span.clone();
        visitor.visit_some(self).map_err(|e| e.or_at(&span))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let span = self.span.clone();
        let read = visitor.visit_newtype_struct(self);
        read.map_err(|e| e.or_at(&span))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match &self.span {
            Some(span) if is_spanned(name) => {
                let span = span.clone();
                let at = Some(span.clone());
                let read = visitor.visit_map(SpannedDeserializer::new(self, span));
                read.map_err(|e: Wrong| e.or_at(&at))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    /// A word.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let wrong = |is| Err(Mistake::no_word(is, words).into());
        let read = match &self.value {
            DeValue::String(word) => visitor.visit_enum(word.clone().into_deserializer()),
            DeValue::Integer(number) => wrong(Unexpected::Other(number.as_str())),
            DeValue::Float(number) => wrong(Unexpected::Other(number.as_str())),
            DeValue::Boolean(value) => wrong(Unexpected::Bool(*value)),
            DeValue::Datetime(_) => wrong(Unexpected::Other("a date")),
            DeValue::Array(_) => wrong(Unexpected::Seq),
            DeValue::Table(_) => wrong(Unexpected::Map),
        };
        read.map_err(|e: Wrong| e.or_at(&self.span))
    }

    serde::forward_to_deserialize_any! {
        bool u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char str string seq bytes byte_buf map unit ignored_any
        unit_struct tuple_struct tuple identifier
    }
}

impl<'de> IntoDeserializer<'de, Wrong> for Value<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

type Key<'de> = Spanned<std::borrow::Cow<'de, str>>;

/// A table's keys with their values, in the file's order, so that of several mistakes the first is named.
struct Entries<'de> {
    entries: std::vec::IntoIter<(Key<'de>, Spanned<DeValue<'de>>)>,
    /// The key that was read last, and its value.
    next: Option<(String, Spanned<DeValue<'de>>)>,
}

impl<'de> Entries<'de> {
    fn of(table: DeTable<'de>) -> Entries<'de> {
        let mut entries: Vec<_> = table.into_iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        Entries {
            entries: entries.into_iter(),
            next: None,
        }
    }
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Wrong> {
        let Some((key, value)) = self.entries.next() else {
            return Ok(None);
        };
        let span = Some(key.span());
        let key = key.into_inner();
        self.next = Some((key.to_string(), value));
        let read = seed.deserialize(key.into_deserializer());
        read.map(Some).map_err(|e: Wrong| e.or_at(&span))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        match self.next.take() {
            Some((key, value)) => {
                // A field may be read by a function that says more than the value's own type.
                let span = Some(value.span());
                let read = seed.deserialize(Value::from(value));
                read.map_err(|e| e.or_at(&span).or_under(key))
            }
            None => Err(Wrong::custom("a value was asked for before its key")),
        }
    }
}

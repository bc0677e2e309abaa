//! Field by field reading of JSON that vendors do not always write as they document it.
//!
//! A member of an unexpected type counts as absent; it never makes its neighbours unreadable. Strings are borrowed from the input where
//! they can be, so the text of a delta is decoded exactly once.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

macro_rules! absent_unless {
    ($($kind:ident),*) => { $(absent_unless!(@ $kind);)* };
    (@ scalar) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> { Ok(Default::default()) }
        fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> { Ok(Default::default()) }
        fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> { Ok(Default::default()) }
        fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> { Ok(Default::default()) }
    };
    (@ text) => {
        fn visit_str<E>(self, _: &str) -> Result<Self::Value, E> { Ok(Default::default()) }
    };
    (@ null) => {
        fn visit_unit<E>(self) -> Result<Self::Value, E> { Ok(Default::default()) }
    };
    (@ list) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Default::default())
        }
    };
    (@ object) => {
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Default::default())
        }
    };
}

/// A string, or nothing.
#[derive(Debug, Default)]
pub(crate) struct Text<'a>(pub(crate) Option<Cow<'a, str>>);

impl<'a> Text<'a> {
    /// The string when it is there and not empty.
    pub(crate) fn filled(self) -> Option<Cow<'a, str>> {
        self.0.filter(|text| !text.is_empty())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Option<Cow<'de, str>>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("any value")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Some(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Some(Cow::Owned(text.to_owned())))
            }
            absent_unless!(scalar, null, list, object);
        }
        deserializer.deserialize_any(TextVisitor).map(Text)
    }
}

/// A whole number that is not negative (also written as a float or in a string), or nothing.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Count(pub(crate) Option<u64>);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;
        impl<'de> Visitor<'de> for CountVisitor {
            type Value = Option<u64>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("any value")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(None)
            }
            fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
                Ok(u64::try_from(value).ok())
            }
            fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
                Ok(Some(value))
            }
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "checked to be in range"
            )]
            fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
                Ok((0.0..9.0e15).contains(&value).then_some(value as u64))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(text.trim().parse().ok())
            }
            absent_unless!(null, list, object);
        }
        deserializer.deserialize_any(CountVisitor).map(Count)
    }
}

/// A finite number that is not negative, or nothing.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Amount(pub(crate) Option<f64>);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AmountVisitor;
        impl<'de> Visitor<'de> for AmountVisitor {
            type Value = Option<f64>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("any value")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
                Ok(None)
            }
            #[expect(clippy::cast_precision_loss, reason = "amounts of money are far below 2^53")]
            fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
                Ok(u64::try_from(value).ok().map(|value| value as f64))
            }
            #[expect(clippy::cast_precision_loss, reason = "amounts of money are far below 2^53")]
            fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
                Ok(Some(value as f64))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
                Ok((value.is_finite() && value >= 0.0).then_some(value))
            }
            absent_unless!(text, null, list, object);
        }
        deserializer.deserialize_any(AmountVisitor).map(Amount)
    }
}

/// An object read as `T`, or nothing. `T`'s own members must be lenient too.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) Option<T>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
            type Value = Option<T>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("any value")
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Some)
            }
            absent_unless!(scalar, text, null, list);
        }
        deserializer.deserialize_any(ObjectVisitor(PhantomData)).map(Object)
    }
}

/// A list of objects read as `T`; members that are no objects are left out. Nothing is the empty list.
#[derive(Debug)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
            type Value = Vec<T>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("any value")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let items = Vec::<Object<T>>::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(items.into_iter().filter_map(|item| item.0).collect())
            }
            absent_unless!(scalar, text, null, object);
        }
        deserializer.deserialize_any(ListVisitor(PhantomData)).map(List)
    }
}

/// A string as it is; any object or list as its JSON text; nothing for the rest. For members that should be JSON in a string.
#[derive(Debug, Default)]
pub(crate) struct JsonText<'a>(pub(crate) Option<Cow<'a, str>>);

impl<'de: 'a, 'a> Deserialize<'de> for JsonText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JsonTextVisitor;
        impl<'de> Visitor<'de> for JsonTextVisitor {
            type Value = Option<Cow<'de, str>>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("any value")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Some(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Some(Cow::Owned(text.to_owned())))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let value = serde_json::Value::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(Some(Cow::Owned(value.to_string())))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let value = serde_json::Value::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Some(Cow::Owned(value.to_string())))
            }
            absent_unless!(scalar, null);
        }
        deserializer.deserialize_any(JsonTextVisitor).map(JsonText)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Sample<'a> {
        #[serde(borrow)]
        text: Text<'a>,
        count: Count,
        amount: Amount,
        #[serde(borrow)]
        inner: Object<Inner<'a>>,
        #[serde(borrow)]
        items: List<Inner<'a>>,
        #[serde(borrow)]
        arguments: JsonText<'a>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Inner<'a> {
        #[serde(borrow)]
        name: Text<'a>,
    }

    #[test]
    fn members_of_a_wrong_type_count_as_absent_and_leave_the_rest_readable() {
        let wrong = ["null", "true", "-1", "[1,{\"name\":\"n\"},[2]]", "{\"name\":3,\"other\":[{}]}", "1.5"];
        for value in wrong {
            let json = format!(
                r#"{{"count":{value},"amount":{value},"inner":{value},"items":{value},"arguments":{value},"extra":{value},"text":"kept"}}"#
            );
            let sample: Sample<'_> = serde_json::from_str(&json).unwrap();
            assert_eq!(sample.text.0.as_deref(), Some("kept"), "{value}");
            let json = format!(r#"{{"text":{value},"count":7}}"#);
            let sample: Sample<'_> = serde_json::from_str(&json).unwrap();
            assert!(sample.text.0.is_none(), "{value}");
            assert_eq!(sample.count.0, Some(7), "{value}");
        }
    }

    #[test]
    fn values_of_a_usable_type_are_read() {
        let json = r#"{"count":"12","amount":0.25,"inner":{"name":"x"},"items":[{"name":"a"},null,7,{"name":"b"}],"arguments":{"b":1,"a":[2]}}"#;
        let sample: Sample<'_> = serde_json::from_str(json).unwrap();
        assert_eq!(sample.count.0, Some(12));
        assert_eq!(sample.amount.0, Some(0.25));
        assert_eq!(sample.inner.0.unwrap().name.0.as_deref(), Some("x"));
        let names: Vec<_> = sample.items.0.into_iter().filter_map(|item| item.name.filled()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(sample.arguments.0.unwrap().contains("\"b\":1"));
        assert_eq!(serde_json::from_str::<Count>("3.0").unwrap().0, Some(3));
        assert_eq!(serde_json::from_str::<Count>("0").unwrap().0, Some(0));
        assert_eq!(serde_json::from_str::<Amount>("2").unwrap().0, Some(2.0));
    }

    #[test]
    fn text_without_escapes_is_borrowed_and_text_with_escapes_is_decoded() {
        let sample: Sample<'_> = serde_json::from_str(r#"{"text":"plain"}"#).unwrap();
        assert!(matches!(sample.text.0, Some(Cow::Borrowed("plain"))));
        let sample: Sample<'_> = serde_json::from_str(r#"{"text":"a\n\u00e9"}"#).unwrap();
        assert_eq!(sample.text.0.as_deref(), Some("a\né"));
    }
}

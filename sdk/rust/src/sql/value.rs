use super::time::{format, parse};
use std::borrow::Cow;
use std::time::SystemTime;

/// A value as it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value<'a> {
    Null,
    /// A value of any type but bytea, in PostgreSQL's text format.
    Text(Cow<'a, str>),
    /// The content of a bytea. As a parameter for another type, PostgreSQL's binary format of that type.
    Bytes(Cow<'a, [u8]>),
}

impl Value<'_> {
    /// A value of a kind and bytes as the host writes it.
    pub(super) fn read(kind: u8, data: &[u8]) -> Value<'_> {
        match kind {
            0 => Value::Null,
            1 => Value::Text(String::from_utf8_lossy(data)), // the host reads rows in UTF-8
            _ => Value::Bytes(data.into()),
        }
    }

    /// Appends the kind, the length and the data.
    pub(super) fn append(&self, to: &mut Vec<u8>) {
        let (kind, data) = match self {
            Value::Null => (0, &[][..]),
            Value::Text(text) => (1, text.as_bytes()),
            Value::Bytes(bytes) => (2, &bytes[..]),
        };
        to.push(kind);
        to.extend((data.len() as u32).to_le_bytes());
        to.extend(data);
    }
}

/// What can be a parameter of a statement. An error says what is wrong with the value.
pub trait ToSql {
    fn to_sql(&self) -> Result<Value<'_>, String>;
}

/// What a value of a row can become. An error says what is wrong with the value.
pub trait FromSql: Sized {
    fn from_sql(value: &Value<'_>) -> Result<Self, String>;
}

/// The text of a value that is not NULL.
fn text<'a>(value: &'a Value<'_>, rust: &str) -> Result<&'a str, String> {
    match value {
        Value::Text(text) => Ok(text),
        Value::Null => Err(null(rust)),
        Value::Bytes(_) => Err(format!("it is a bytea, not {rust}: read a Vec<u8>")),
    }
}

fn null(rust: &str) -> String {
    format!("it is NULL: read an Option<{rust}>")
}

impl<T: ToSql + ?Sized> ToSql for &T {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        (**self).to_sql()
    }
}

impl<T: ToSql> ToSql for Option<T> {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        self.as_ref().map_or(Ok(Value::Null), ToSql::to_sql)
    }
}

impl<T: FromSql> FromSql for Option<T> {
    fn from_sql(value: &Value<'_>) -> Result<Self, String> {
        match value {
            Value::Null => Ok(None),
            value => T::from_sql(value).map(Some),
        }
    }
}

macro_rules! numbers {
    ($($number:ident)*) => { $(
        impl ToSql for $number {
            fn to_sql(&self) -> Result<Value<'_>, String> {
                Ok(Value::Text(self.to_string().into()))
            }
        }
        impl FromSql for $number {
            fn from_sql(value: &Value<'_>) -> Result<Self, String> {
                let text = text(value, stringify!($number))?;
                text.parse().map_err(|err| format!("{text:?} is no {}: {err}", stringify!($number)))
            }
        }
    )* };
}

numbers!(i16 i32 i64 u16 u32 u64 isize usize f32 f64);

impl ToSql for bool {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        Ok(Value::Text((if *self { "t" } else { "f" }).into()))
    }
}

impl FromSql for bool {
    fn from_sql(value: &Value<'_>) -> Result<Self, String> {
        match text(value, "bool")? {
            "t" => Ok(true),
            "f" => Ok(false),
            other => Err(format!("{other:?} is no bool")),
        }
    }
}

impl ToSql for str {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        Ok(Value::Text(self.into()))
    }
}

impl ToSql for String {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        self.as_str().to_sql()
    }
}

impl FromSql for String {
    fn from_sql(value: &Value<'_>) -> Result<Self, String> {
        text(value, "String").map(String::from)
    }
}

impl ToSql for [u8] {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        Ok(Value::Bytes(self.into()))
    }
}

impl ToSql for Vec<u8> {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        self.as_slice().to_sql()
    }
}

impl<const N: usize> ToSql for [u8; N] {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        self.as_slice().to_sql()
    }
}

/// A bytea, also in PostgreSQL's text format, as it is in arrays.
impl FromSql for Vec<u8> {
    fn from_sql(value: &Value<'_>) -> Result<Self, String> {
        match value {
            Value::Bytes(bytes) => Ok(bytes.to_vec()),
            Value::Null => Err(null("Vec<u8>")),
            Value::Text(text) => unhex(text).ok_or_else(|| "it is no bytea: read a String".into()),
        }
    }
}

/// Reads `\x` and hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x").filter(|digits| digits.len() % 2 == 0 && digits.bytes().all(|c| c.is_ascii_hexdigit()))?;
    (0..digits.len() / 2).map(|i| u8::from_str_radix(&digits[2 * i..][..2], 16).ok()).collect()
}

impl ToSql for SystemTime {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        Ok(Value::Text(format(*self).into()))
    }
}

impl FromSql for SystemTime {
    fn from_sql(value: &Value<'_>) -> Result<Self, String> {
        let text = text(value, "SystemTime")?;
        parse(text).ok_or_else(|| format!("{text:?} is no SystemTime: read a String"))
    }
}

/// An array of one dimension.
impl<T: ToSql> ToSql for [T] {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        let mut array = String::from("{");
        for item in self {
            if array.len() > 1 {
                array.push(',');
            }
            match item.to_sql()? {
                Value::Null => array.push_str("NULL"),
                Value::Text(text) => quote(&mut array, &text),
                Value::Bytes(bytes) => {
                    array.push_str("\"\\\\x");
                    array.extend(bytes.iter().map(|byte| format!("{byte:02x}")));
                    array.push('"');
                }
            }
        }
        array.push('}');
        Ok(Value::Text(array.into()))
    }
}

impl<T: ToSql> ToSql for Vec<T> {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        self.as_slice().to_sql()
    }
}

impl<T: ToSql, const N: usize> ToSql for [T; N] {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        self.as_slice().to_sql()
    }
}

/// Appends an element of an array.
fn quote(to: &mut String, text: &str) {
    to.push('"');
    for c in text.chars() {
        if c == '"' || c == '\\' {
            to.push('\\');
        }
        to.push(c);
    }
    to.push('"');
}

/// An array. One of several dimensions is a `Vec` of `Vec`s.
impl<T: FromSql> FromSql for Vec<T> {
    fn from_sql(value: &Value<'_>) -> Result<Self, String> {
        let text = text(value, "Vec")?;
        let elements = elements(text).ok_or_else(|| format!("{text:?} is no array"))?;
        elements.into_iter().enumerate().map(|(i, element)| T::from_sql(&element).map_err(|why| format!("element {}: {why}", i + 1))).collect()
    }
}

/// The elements of an array in PostgreSQL's text format. Those of an outer dimension are arrays as text.
fn elements(array: &str) -> Option<Vec<Value<'_>>> {
    let array = if array.starts_with('[') { array.split_once('=')?.1 } else { array }; // bounds that are not from 1
    let mut rest = array.strip_prefix('{')?.strip_suffix('}')?;
    let mut all = Vec::new();
    while !rest.is_empty() {
        let (element, behind) = element(rest)?;
        all.push(element);
        rest = match behind.strip_prefix(',') {
            Some("") => return None,
            Some(rest) => rest,
            None if behind.is_empty() => behind,
            None => return None,
        };
    }
    Some(all)
}

/// The first element of a list, and what is behind it.
fn element(list: &str) -> Option<(Value<'_>, &str)> {
    if let Some(quoted) = list.strip_prefix('"') {
        let (mut text, mut chars) = (String::new(), quoted.char_indices());
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => return Some((Value::Text(text.into()), &quoted[at + 1..])),
                '\\' => text.push(chars.next()?.1),
                c => text.push(c),
            }
        }
        return None;
    }
    let end = if list.starts_with('{') { closed(list)? } else { list.find(',').unwrap_or(list.len()) };
    let (text, rest) = list.split_at(end);
    Some((if text == "NULL" { Value::Null } else { Value::Text(text.into()) }, rest))
}

/// Where an array that a text begins with ends.
fn closed(text: &str) -> Option<usize> {
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            '{' if !quoted => depth += 1,
            '}' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// JSON by serde. JSON's null is not NULL. Needs the feature `serde`.
#[cfg(feature = "serde")]
impl<T: serde::Serialize> ToSql for crate::Json<T> {
    fn to_sql(&self) -> Result<Value<'_>, String> {
        serde_json::to_string(&self.0).map(|json| Value::Text(json.into())).map_err(|err| err.to_string())
    }
}

/// JSON by serde. JSON's null is not NULL. Needs the feature `serde`.
#[cfg(feature = "serde")]
impl<T: serde::de::DeserializeOwned> FromSql for crate::Json<T> {
    fn from_sql(value: &Value<'_>) -> Result<Self, String> {
        serde_json::from_str(text(value, "Json")?).map(crate::Json).map_err(|err| format!("it is not the expected JSON: {err}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round<T: FromSql>(value: Value<'_>) -> Result<T, String> {
        T::from_sql(&value)
    }

    #[test]
    fn arrays() {
        let text = |text: &'static str| Value::Text(text.into());
        assert_eq!(round(text(r#"{1,NULL,-3}"#)), Ok(vec![Some(1), None, Some(-3)]));
        assert_eq!(round(text(r#"{"a \"b\"","c\\,}",NULL,"NULL",""}"#)), Ok([Some("a \"b\""), Some("c\\,}"), None, Some("NULL"), Some("")].map(|s| s.map(String::from)).to_vec()));
        assert_eq!(round(text("{}")), Ok(Vec::<i32>::new()));
        assert_eq!(round(text("[0:1]={1,2}")), Ok(vec![1, 2]));
        assert_eq!(round(text(r#"{{"a}",b},{NULL,c}}"#)), Ok(vec![vec![Some("a}".to_string()), Some("b".into())], vec![None, Some("c".into())]]));
        assert_eq!(round(text(r#"{"\\x00ff"}"#)), Ok(vec![vec![0u8, 255]]));
        for bad in ["", "{", "{1", "{1,}", "{,1}", "{\"a}", "{\"a\"b}", "{{1}"] {
            assert!(round::<Vec<i32>>(text(bad)).is_err(), "{bad}");
        }
        assert_eq!(round::<Vec<i32>>(text("{1,NULL}")), Err("element 2: it is NULL: read an Option<i32>".into()));
        for (array, want) in [
            (vec![Some("a\"\\"), None, Some("NULL")].to_sql(), r#"{"a\"\\",NULL,"NULL"}"#),
            ([1, 2].to_sql(), r#"{"1","2"}"#),
            ([&b"\0a"[..]].to_sql(), r#"{"\\x0061"}"#),
        ] {
            assert_eq!(array, Ok(text(want)));
        }
    }

    #[test]
    fn wrong_types() {
        for (got, want) in [
            (round::<i32>(Value::Text("3000000000".into())).map(drop), "\"3000000000\" is no i32: number too large to fit in target type"),
            (round::<i64>(Value::Null).map(drop), "it is NULL: read an Option<i64>"),
            (round::<String>(Value::Bytes((&[0][..]).into())).map(drop), "it is a bytea, not String: read a Vec<u8>"),
            (round::<Vec<u8>>(Value::Text("abc".into())).map(drop), "it is no bytea: read a String"),
            (round::<bool>(Value::Text("1".into())).map(drop), "\"1\" is no bool"),
            (round::<SystemTime>(Value::Text("infinity".into())).map(drop), "\"infinity\" is no SystemTime: read a String"),
        ] {
            assert_eq!(got, Err(want.into()));
        }
    }
}

//! As much JSON as quern_v1 needs: objects that are sent, and the head of an HTTP answer.

/// JSON by serde: as a handler's result, and as a field of a log line. Needs the feature `serde`.
#[cfg(feature = "serde")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Json<T>(pub T);

#[cfg(feature = "serde")]
impl<T: serde::Serialize> crate::Field for Json<T> {
    fn append(&self, to: &mut String) {
        to.push_str(&serde_json::to_string(&self.0).unwrap_or_else(|_| "null".into()));
    }
}

/// A JSON object that is being written.
#[derive(Clone, Debug)]
pub(crate) struct Object(String);

impl Object {
    pub(crate) fn new() -> Object {
        Object("{".into())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.len() == 1
    }

    /// Adds a member, whose value a function appends.
    pub(crate) fn member(&mut self, name: &str, append: impl FnOnce(&mut String)) {
        if !self.is_empty() {
            self.0.push(',');
        }
        quote(&mut self.0, name);
        self.0.push(':');
        append(&mut self.0);
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.member(name, |to| quote(to, value));
    }

    pub(crate) fn texts(&mut self, name: &str, values: &[&str]) {
        self.member(name, |to| {
            for (i, value) in values.iter().enumerate() {
                to.push(if i == 0 { '[' } else { ',' });
                quote(to, value);
            }
            to.push_str(if values.is_empty() { "[]" } else { "]" });
        });
    }

    pub(crate) fn number(&mut self, name: &str, value: i64) {
        self.member(name, |to| to.push_str(&value.to_string()));
    }

    pub(crate) fn object(&mut self, name: &str, value: Object) {
        self.member(name, |to| to.push_str(&value.end()));
    }

    pub(crate) fn end(mut self) -> String {
        self.0.push('}');
        self.0
    }
}

/// Appends a JSON string.
pub(crate) fn quote(to: &mut String, text: &str) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    to.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => to.extend(['\\', c]),
            '\0'..='\x1f' => {
                to.push_str("\\u00");
                to.extend([DIGITS[c as usize >> 4] as char, DIGITS[c as usize & 15] as char]);
            }
            _ => to.push(c),
        }
    }
    to.push('"');
}

/// Reads JSON that the host has written.
pub(crate) struct Reader<'a>(&'a str);

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Reader<'a> {
        Reader(text)
    }

    /// Whether a mark comes next, which is then behind.
    fn take(&mut self, mark: char) -> Option<()> {
        self.0 = self.0.trim_start().strip_prefix(mark)?;
        Some(())
    }

    /// Reads elements between two marks, each by a function.
    fn between(&mut self, open: char, close: char, mut read: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.take(open)?;
        if self.take(close).is_some() {
            return Some(());
        }
        loop {
            read(self)?;
            if self.take(',').is_none() {
                return self.take(close);
            }
        }
    }

    /// Reads an object; the function reads the value of each member.
    pub(crate) fn object(&mut self, mut read: impl FnMut(&mut Self, String) -> Option<()>) -> Option<()> {
        self.between('{', '}', |r| {
            let name = r.text()?;
            r.take(':')?;
            read(r, name)
        })
    }

    pub(crate) fn array(&mut self, read: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.between('[', ']', read)
    }

    pub(crate) fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        self.word().parse().ok()
    }

    /// A number, or true, false or null, as it is written.
    fn word(&mut self) -> &'a str {
        let text = self.0.trim_start();
        let (word, rest) = text.split_at(text.find([',', ']', '}', ' ', '\n', '\r', '\t']).unwrap_or(text.len()));
        self.0 = rest;
        word
    }

    /// Passes over a value of any kind.
    pub(crate) fn skip(&mut self) -> Option<()> {
        match self.0.trim_start().chars().next()? {
            '"' => self.text().map(drop),
            '{' => self.object(|r, _| r.skip()),
            '[' => self.array(Self::skip),
            _ => Some(self.word()).filter(|word| !word.is_empty()).map(drop),
        }
    }

    pub(crate) fn text(&mut self) -> Option<String> {
        self.take('"')?;
        let (mut out, mut units) = (String::new(), Vec::new());
        loop {
            let (plain, rest) = self.0.split_at(self.0.find(['"', '\\'])?);
            if !plain.is_empty() {
                flush(&mut out, &mut units);
                out.push_str(plain);
            }
            if let Some(rest) = rest.strip_prefix('"') {
                flush(&mut out, &mut units);
                self.0 = rest;
                return Some(out);
            }
            let kind = *rest.as_bytes().get(1)?;
            if kind == b'u' {
                units.push(u16::from_str_radix(rest.get(2..6)?, 16).ok()?);
                self.0 = &rest[6..];
                continue;
            }
            flush(&mut out, &mut units);
            out.push(match kind {
                b'"' | b'\\' | b'/' => kind as char,
                b'b' => '\x08',
                b'f' => '\x0c',
                b'n' => '\n',
                b'r' => '\r',
                b't' => '\t',
                _ => return None,
            });
            self.0 = &rest[2..];
        }
    }
}

/// Appends the UTF-16 of \u escapes, of which two may be one character.
fn flush(out: &mut String, units: &mut Vec<u16>) {
    out.extend(char::decode_utf16(units.drain(..)).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects() {
        let mut inner = Object::new();
        inner.text("a\"\u{1}é", "x\\\n");
        let mut object = Object::new();
        object.object("o", inner);
        object.number("n", -3);
        assert_eq!(object.end(), r#"{"o":{"a\"\u0001é":"x\\\u000a"},"n":-3}"#);
        assert_eq!(Object::new().end(), "{}");
    }

    #[test]
    fn texts() {
        for (json, want) in [(r#" "" "#, ""), (r#""\ud83d\ude00\/\n\"é""#, "😀/\n\"é"), (r#""\ud83dx""#, "\u{fffd}x")] {
            assert_eq!(Reader::new(json).text().as_deref(), Some(want), "{json}");
        }
        for json in ["", "\"", "\"\\", "\"\\x\"", "\"\\u12", "\"\\u00zz\"", "a"] {
            assert_eq!(Reader::new(json).text(), None, "{json}");
        }
    }

    #[test]
    fn values() {
        let mut names = Vec::new();
        let mut reader = Reader::new(r#" { "a" : [1, "x", {"b": null}, []], "c":-1.5e3 } "#);
        assert!(reader.object(|r, name| {
            names.push(name);
            r.skip()
        }).is_some());
        assert_eq!(names, ["a", "c"]);
        for json in ["", "{", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "[1", "[1 2]", "[,]"] {
            assert!(Reader::new(json).skip().is_none(), "{json}");
        }
    }
}

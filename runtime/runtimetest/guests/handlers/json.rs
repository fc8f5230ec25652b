// Parses its input, JSON, into a tree; adds up what an order costs and weighs; and writes the order with the sums.
// See JSON in handlers.go. What is not JSON ends it with 65. Pairs of surrogates are not put together.
#[link(wasm_import_module = "quern_v1")]
extern "C" {
    fn input_size() -> i32;
    fn input_read(offset: u32, to: *mut u8, capacity: u32) -> i32;
    fn output_write(from: *const u8, size: u32) -> i32;
}

fn input() -> Vec<u8> {
    let mut bytes = vec![0; unsafe { input_size() } as usize];
    unsafe { input_read(0, bytes.as_mut_ptr(), bytes.len() as u32) };
    bytes
}

fn output(bytes: &[u8]) {
    unsafe { output_write(bytes.as_ptr(), bytes.len() as u32) };
}

// ---- the same for all hosts
use std::io::Write;

enum Value {
    Null,
    Boolean(bool),
    Number(f64),
    Text(String),
    Array(Vec<Value>),
    Object(Vec<(String, Value)>),
}

impl Value {
    fn member(&self, name: &str) -> &Value {
        match self {
            Value::Object(members) => members.iter().find(|(n, _)| n == name).map_or(&Value::Null, |(_, v)| v),
            _ => &Value::Null,
        }
    }

    fn set(&mut self, name: &str, number: f64) {
        if let Value::Object(members) = self {
            for (_, value) in members.iter_mut().filter(|(n, _)| n == name) {
                *value = Value::Number(number);
            }
        }
    }

    fn items(&self) -> &[Value] {
        match self {
            Value::Array(items) => items,
            _ => &[],
        }
    }

    fn number(&self) -> f64 {
        match self {
            Value::Number(number) => *number,
            _ => 0.0,
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        match self {
            Value::Null => to.extend(b"null"),
            Value::Boolean(true) => to.extend(b"true"),
            Value::Boolean(false) => to.extend(b"false"),
            Value::Number(n) if *n == *n as i64 as f64 => write!(to, "{}", *n as i64).unwrap(),
            Value::Number(n) => write!(to, "{}", n).unwrap(),
            Value::Text(text) => write_text(text, to),
            Value::Array(items) => {
                to.push(b'[');
                for (i, item) in items.iter().enumerate() {
                    if i > 0 {
                        to.push(b',');
                    }
                    item.write(to);
                }
                to.push(b']');
            }
            Value::Object(members) => {
                to.push(b'{');
                for (i, (name, value)) in members.iter().enumerate() {
                    if i > 0 {
                        to.push(b',');
                    }
                    write_text(name, to);
                    to.push(b':');
                    value.write(to);
                }
                to.push(b'}');
            }
        }
    }
}

fn write_text(text: &str, to: &mut Vec<u8>) {
    to.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' | b'\\' => to.extend([b'\\', byte]),
            b'\n' => to.extend(b"\\n"),
            0..=0x1f => write!(to, "\\u{:04x}", byte).unwrap(),
            _ => to.push(byte),
        }
    }
    to.push(b'"');
}

struct Parser<'a> {
    rest: &'a [u8],
}

impl<'a> Parser<'a> {
    fn next(&mut self) -> Option<u8> {
        while let [b' ' | b'\n' | b'\t' | b'\r', rest @ ..] = self.rest {
            self.rest = rest;
        }
        self.rest.first().copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.next() == Some(byte);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn word(&mut self, word: &str, value: Value) -> Option<Value> {
        self.rest = self.rest.strip_prefix(word.as_bytes())?;
        Some(value)
    }

    fn value(&mut self) -> Option<Value> {
        match self.next()? {
            b'{' => self.list(b'}', |p| {
                let name = p.text()?;
                if p.take(b':') { Some((name, p.value()?)) } else { None }
            }).map(Value::Object),
            b'[' => self.list(b']', |p| p.value()).map(Value::Array),
            b'"' => self.text().map(Value::Text),
            b't' => self.word("true", Value::Boolean(true)),
            b'f' => self.word("false", Value::Boolean(false)),
            b'n' => self.word("null", Value::Null),
            _ => self.number(),
        }
    }

    fn list<T>(&mut self, end: u8, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut items = Vec::new();
        self.rest = &self.rest[1..];
        if self.take(end) {
            return Some(items);
        }
        loop {
            items.push(item(self)?);
            if !self.take(b',') {
                return if self.take(end) { Some(items) } else { None };
            }
        }
    }

    fn number(&mut self) -> Option<Value> {
        let end = self.rest.iter().position(|b| !b"+-.0123456789Ee".contains(b)).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        std::str::from_utf8(number).ok()?.parse().ok().map(Value::Number)
    }

    fn text(&mut self) -> Option<String> {
        if !self.take(b'"') {
            return None;
        }
        let mut text = Vec::new();
        loop {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            match byte {
                b'"' => return String::from_utf8(text).ok(),
                b'\\' => self.escape(&mut text)?,
                _ => text.push(byte),
            }
        }
    }

    fn escape(&mut self, text: &mut Vec<u8>) -> Option<()> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        let names = b"\"\\/bfnrt";
        if let Some(i) = names.iter().position(|&name| name == byte) {
            text.push(b"\"\\/\x08\x0c\n\r\t"[i]);
            return Some(());
        }
        if byte != b'u' || rest.len() < 4 {
            return None;
        }
        let code = u32::from_str_radix(std::str::from_utf8(&rest[..4]).ok()?, 16).ok()?;
        self.rest = &rest[4..];
        text.extend(char::from_u32(code)?.to_string().bytes());
        Some(())
    }
}

fn reckon(order: &mut Value) {
    let (mut total, mut weight) = (0.0, 0.0);
    for line in order.member("lines").items() {
        let quantity = line.member("quantity").number();
        total += quantity * line.member("price").number();
        weight += quantity * line.member("weights").items().iter().map(Value::number).sum::<f64>();
    }
    order.set("total", total);
    order.set("weight", weight);
}

#[no_mangle]
pub extern "C" fn quern_handle() -> i32 {
    let text = input();
    let mut parser = Parser { rest: &text };
    match parser.value() {
        Some(mut order) if parser.next().is_none() => {
            reckon(&mut order);
            let mut written = Vec::new();
            order.write(&mut written);
            output(&written);
            0
        }
        _ => 65,
    }
}

//! The words of a line.

use std::time::Duration;

/// The words of a call, its verb first. A word that is not there is empty.
#[derive(Clone, Copy)]
pub struct Words<'a>(pub &'a [&'a str]);

impl<'a> Words<'a> {
    pub fn word(&self, i: usize) -> &'a str {
        self.0.get(i).copied().unwrap_or_default()
    }

    pub fn from(&self, i: usize) -> Words<'a> {
        Words(self.0.get(i..).unwrap_or_default())
    }

    pub fn bytes(&self, i: usize) -> Vec<u8> {
        bytes(self.word(i))
    }

    pub fn text(&self, i: usize) -> String {
        String::from_utf8_lossy(&self.bytes(i)).into_owned()
    }

    pub fn number(&self, i: usize) -> i64 {
        number(self.word(i))
    }

    /// Milliseconds; none for 0.
    pub fn time(&self, i: usize) -> Option<Duration> {
        u64::try_from(self.number(i)).ok().filter(|&ms| ms > 0).map(Duration::from_millis)
    }

    /// Pairs of a name and a value, from a word on.
    pub fn pairs(&self, i: usize) -> Vec<(String, String)> {
        self.from(i).0.chunks(2).map(|pair| (Words(pair).text(0), Words(pair).text(1))).collect()
    }
}

/// A number; $ before it adds the size of memory.
pub fn number(word: &str) -> i64 {
    match word.strip_prefix('$') {
        Some(rest) => number(rest) + memory(),
        None => word.parse().unwrap_or(0),
    }
}

#[cfg(target_arch = "wasm32")]
fn memory() -> i64 {
    (core::arch::wasm32::memory_size(0) as i64) << 16
}

#[cfg(not(target_arch = "wasm32"))]
fn memory() -> i64 {
    0
}

/// What a word stands for: %61 is a byte, a trailing *3 repeats what is before it, and - alone is nothing.
pub fn bytes(word: &str) -> Vec<u8> {
    if word == "-" {
        return Vec::new();
    }
    let repeated = word.rsplit_once('*').and_then(|(one, times)| Some((one, times.parse().ok()?)));
    let (one, times) = repeated.unwrap_or((word, 1));
    let mut parts = one.split('%');
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        out.push(u8::from_str_radix(digits, 16).unwrap_or(0));
        out.extend_from_slice(rest.as_bytes());
    }
    out.repeat(times)
}

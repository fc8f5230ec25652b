//! HTTP requests, to the hosts that the manifest grants.
//!
//! ```
//! # fn main() -> Result<(), quern::Error> {
//! # if !cfg!(target_arch = "wasm32") { return Ok(()); }
//! let answer = quern::http::get("https://api.example.com/v1").header("Accept", "application/json").send()?;
//! if answer.status != 200 {
//!     return Err(quern::Error::retry(format!("the server answers {}", answer.status)));
//! }
//! # Ok(())
//! # }
//! ```

use crate::json::{quote, Object, Reader};
use crate::kv::prefixed;
use crate::{millis, slot, ErrorKind, HostError};
use std::time::Duration;

/// A request.
#[derive(Clone, Debug)]
#[must_use = "nothing is requested before send"]
pub struct Request {
    method: String,
    url: String,
    headers: Headers,
    timeout: Option<Duration>,
    body: Vec<u8>,
}

/// Each name with its values.
pub(crate) type Headers = Vec<(String, Vec<String>)>;

pub fn get(url: impl Into<String>) -> Request {
    Request::new("GET", url)
}

pub fn post(url: impl Into<String>, body: impl Into<Vec<u8>>) -> Request {
    Request::new("POST", url).body(body)
}

impl Request {
    pub fn new(method: impl Into<String>, url: impl Into<String>) -> Request {
        Request { method: method.into(), url: url.into(), headers: Vec::new(), timeout: None, body: Vec::new() }
    }

    /// Adds a value of a header.
    pub fn header(mut self, name: &str, value: &str) -> Request {
        match self.headers.iter_mut().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            Some((_, values)) => values.push(value.into()),
            None => self.headers.push((name.into(), vec![value.into()])),
        }
        self
    }

    /// At most 16 MiB.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Request {
        self.body = body.into();
        self
    }

    /// Shortens the host's time limit, which ends with the last byte of the answer.
    pub fn timeout(mut self, timeout: Duration) -> Request {
        self.timeout = Some(timeout);
        self
    }

    /// Sends the request and returns the answer, of any status. Redirects are not followed. [`ErrorKind::Unavailable`] if there is
    /// no answer, or not in time.
    pub fn send(self) -> Result<Answer, HostError> {
        let mut head = Object::new();
        head.text("method", &self.method);
        head.text("url", &self.url);
        head.object("headers", write_headers(&self.headers));
        if let Some(timeout) = self.timeout {
            head.number("timeout_ms", millis(timeout));
        }
        let head = head.end();
        // Safety: the ranges are those of slices.
        let answer = call!(unsafe { http(head.as_ptr(), head.len(), self.body.as_ptr(), self.body.len()) });
        let answer = answer.map_err(|mut err| {
            // The name has the request, with its path.
            let begins = err.reason.starts_with(&format!("{} http", self.method));
            if let Some((_, rest)) = err.reason.split_once(": ").filter(|_| begins) {
                err.reason = rest.into();
            }
            err.about("", &shown(&self.method, &self.url))
        });
        // Hosts write their own answers rightly.
        Answer::read(slot(answer)?).ok_or(HostError { function: "http", name: String::new(), kind: ErrorKind::Other(0), reason: String::new() })
    }
}

/// What errors tell of a request: nothing that may be secret.
fn shown(method: &str, url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    format!("{method} {scheme}://{}{path}", host.rsplit('@').next().unwrap_or_default())
}

/// Headers as JSON.
pub(crate) fn write_headers(headers: &Headers) -> Object {
    let mut object = Object::new();
    for (name, values) in headers {
        object.member(name, |to| {
            for (i, value) in values.iter().enumerate() {
                to.push(if i == 0 { '[' } else { ',' });
                quote(to, value);
            }
            to.push(']');
        });
    }
    object
}

pub(crate) fn read_headers(r: &mut Reader) -> Option<Headers> {
    let mut headers = Vec::new();
    r.object(|r, name| {
        let mut values = Vec::new();
        r.array(|r| {
            values.push(r.text()?);
            Some(())
        })?;
        headers.push((name, values));
        Some(())
    })?;
    Some(headers)
}

/// The answer to a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Answer {
    pub status: u16,
    /// Names are in lower case.
    pub headers: Headers,
    /// As it was sent.
    pub body: Vec<u8>,
}

impl Answer {
    fn read(mut answer: Vec<u8>) -> Option<Answer> {
        let (size, _) = prefixed(&answer)?;
        let body = answer.split_off(4 + size);
        let mut read = Answer { status: 0, headers: Vec::new(), body };
        Reader::new(std::str::from_utf8(&answer[4..]).ok()?).object(|r, name| {
            match name.as_str() {
                "status" => read.status = r.number()?,
                "headers" => read.headers = read_headers(r)?,
                _ => r.skip()?,
            }
            Some(())
        })?;
        Some(read)
    }

    /// The first value of a header; `None` if the answer does not have it.
    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, values) = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        values.first().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_urls() {
        for (url, want) in [
            ("https://api.example.com/@ada/posts?key=secret#token", "GET https://api.example.com/@ada/posts"),
            ("https://ada:word@a.example#token", "GET https://a.example"),
        ] {
            assert_eq!(shown("GET", url), want);
        }
    }

    #[test]
    fn answers() {
        let head = r#"{"status":404,"new":[{}],"headers":{"content-type":["text/plain"],"x-two":["1","\u003c2"]}}"#;
        let mut answer = (head.len() as u32).to_le_bytes().to_vec();
        answer.extend(head.bytes().chain(*b"hi"));
        let read = Answer::read(answer).unwrap();
        assert_eq!((read.status, &read.body[..]), (404, &b"hi"[..]));
        assert_eq!((read.header("Content-Type"), read.header("none")), (Some("text/plain"), None));
        assert_eq!(read.headers[1].1, ["1", "<2"]);
        for bad in [&b""[..], &[9, 0, 0, 0], &[2, 0, 0, 0, b'[', b']']] {
            assert!(Answer::read(bad.to_vec()).is_none(), "{bad:?}");
        }
    }
}

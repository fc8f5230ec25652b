//! Runs a handler in `cargo test`, without WebAssembly and without a host. A [`Task`] is also the host of its run, with services in
//! memory. What the test does not grant is denied, and the result's log names the line to add.
//!
//! ```
//! fn greet(task: quern::Task) -> Result<String, quern::Error> {
//!     let times = quern::bucket("greeted").increment(task.text()?, 1)?;
//!     quern::info!("greeting"; times = times);
//!     Ok(format!("Hello, {}!", task.text()?))
//! }
//!
//! let result = quern::test::Task::new("Ada").bucket("greeted", &[("Ada", "2")]).run(greet);
//! assert_eq!(result.text(), "Hello, Ada!");
//! assert_eq!(result.value("greeted", "Ada"), Some("3"));
//! assert_eq!(result.log, [r#"greeting {"times":3}"#]);
//! ```
//!
//! A panic of the handler is one of the test. Statics keep their values from run to run. Nothing expires, there is no quota and no
//! limit of a manifest, and the options of a new task are not checked: `quern plugin test` runs the module itself.

mod host;

pub(crate) use host::call;

use crate::http::Answer;
use crate::{Error, ErrorKind, Output};
use host::Host;
use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The values of each bucket, by their keys.
pub type Kv = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

/// A task for a handler: the first attempt, unless the test says otherwise.
pub struct Task {
    input: Vec<u8>,
    texts: [String; 10],
    results: BTreeMap<String, Option<Vec<u8>>>,
    headers: BTreeMap<String, String>,
    numbers: [i64; 5],
    cancelled: bool,
    config: BTreeMap<String, String>,
    secrets: BTreeMap<String, Vec<u8>>,
    kv: Kv,
    checkpoint: Option<Vec<u8>>,
    queues: Vec<String>,
    topics: Vec<String>,
    http: Option<Box<dyn FnMut(Request) -> Answer>>,
    faults: BTreeMap<&'static str, ErrorKind>,
}

macro_rules! texts {
    ($($name:ident = $field:literal),*) => { $(
        #[doc = concat!("What the handler gets as `task.", stringify!($name), "()`.")]
        pub fn $name(mut self, text: &str) -> Task {
            self.texts[$field] = text.into();
            self
        }
    )* };
}

impl Task {
    pub fn new(input: impl Into<Vec<u8>>) -> Task {
        Task {
            input: input.into(),
            texts: ["test", "test", "default", "test", "", "", "", "", "", ""].map(String::from),
            results: BTreeMap::new(),
            headers: BTreeMap::new(),
            numbers: [1, 0, 0, i64::MAX, 0],
            cancelled: false,
            config: BTreeMap::new(),
            secrets: BTreeMap::new(),
            kv: Kv::new(),
            checkpoint: None,
            queues: Vec::new(),
            topics: Vec::new(),
            http: None,
            faults: BTreeMap::new(),
        }
    }

    texts!(id = 0, queue = 1, tenant = 2, plugin = 3, previous_error = 4, parent = 5, key = 6, traceparent = 7);

    /// Adds a header of the task.
    pub fn header(mut self, name: &str, value: &str) -> Task {
        self.headers.insert(name.into(), value.into());
        self
    }
    /// Adds a task that this one waited for, with its result; `None` if it failed.
    pub fn dependency(mut self, id: &str, result: Option<&[u8]>) -> Task {
        self.texts[9] += &format!("{id} {}\n", if result.is_some() { "complete" } else { "failed" });
        self.results.insert(id.into(), result.map(Vec::from));
        self
    }
    pub fn attempt(mut self, attempt: u32) -> Task {
        self.numbers[0] = attempt.into();
        self
    }
    pub fn max_attempts(mut self, attempts: u32) -> Task {
        self.numbers[1] = attempts.into();
        self
    }
    /// How often it has put itself off.
    pub fn reschedules(mut self, times: u32) -> Task {
        self.numbers[4] = times.into();
        self
    }
    pub fn deadline(mut self, at: SystemTime) -> Task {
        self.numbers[2] = at.duration_since(UNIX_EPOCH).map_or(1, crate::millis);
        self
    }
    /// The host is about to stop.
    pub fn cancelled(mut self) -> Task {
        self.cancelled = true;
        self
    }
    /// A value of the manifest's section config.
    pub fn config(mut self, name: &str, value: &str) -> Task {
        self.config.insert(name.into(), value.into());
        self
    }
    /// Grants a secret.
    pub fn secret(mut self, name: &str, value: impl Into<Vec<u8>>) -> Task {
        self.secrets.insert(name.into(), value.into());
        self
    }
    /// Grants a bucket, with keys and their values.
    pub fn bucket(mut self, name: &str, values: &[(&str, &str)]) -> Task {
        let bucket = self.kv.entry(name.into()).or_default();
        bucket.extend(values.iter().map(|(key, value)| (String::from(*key), (*value).into())));
        self
    }
    /// Grants all buckets that an earlier run has left: its [`Result::kv`].
    pub fn kv(mut self, kv: Kv) -> Task {
        self.kv = kv;
        self
    }
    /// What an earlier run of the task has saved.
    pub fn checkpoint(mut self, value: impl Into<Vec<u8>>) -> Task {
        self.checkpoint = Some(value.into());
        self
    }
    /// Grants queues for new tasks, by name or with one `*` for any text.
    pub fn queues(mut self, names: &[&str]) -> Task {
        self.queues.extend(names.iter().map(|&name| String::from(name)));
        self
    }
    /// Grants topics likewise.
    pub fn topics(mut self, names: &[&str]) -> Task {
        self.topics.extend(names.iter().map(|&name| String::from(name)));
        self
    }
    /// Grants HTTP, and answers requests: `http(|request| Answer::new(200, request.url))`.
    pub fn http(mut self, answer: impl FnMut(Request) -> Answer + 'static) -> Task {
        self.http = Some(Box::new(answer));
        self
    }
    /// Has a function of [`sys`](crate::sys) fail: `fault("kv_get", ErrorKind::Unavailable)`.
    pub fn fault(mut self, function: &'static str, err: ErrorKind) -> Task {
        self.faults.insert(function, err);
        self
    }

    /// Runs the handler.
    pub fn run<T: Output>(mut self, handler: impl FnOnce(crate::Task) -> std::result::Result<T, Error>) -> Result {
        if !self.texts[7].is_empty() {
            self.headers.insert("traceparent".into(), self.texts[7].clone());
        }
        self.texts[8] = self.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        Host::run(self, || crate::__run(handler))
    }
}

/// A request of the handler.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Request {
    pub method: String,
    pub url: String,
    /// Each name with its values.
    pub headers: Vec<(String, Vec<String>)>,
    pub body: Vec<u8>,
}

/// Answers of a test.
impl Answer {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Answer {
        Answer { status, headers: Vec::new(), body: body.into() }
    }

    /// Adds a header.
    pub fn with_header(mut self, name: &str, value: &str) -> Answer {
        self.headers.push((name.to_lowercase(), vec![value.into()]));
        self
    }
}

/// What becomes of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Complete,
    /// And is tried again if the retry policy says so.
    Failed,
    /// Has failed for good.
    Fatal,
    /// Is tried again later.
    Retry,
}

/// What a run leaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Result {
    pub status: Status,
    /// Of a complete task.
    pub output: Vec<u8>,
    /// Why it is not complete.
    pub error: String,
    /// What [`Error::after`] asks for.
    pub delay: Option<Duration>,
    /// Whether the delay is for all tasks with the task's key: [`Error::for_key`].
    pub key: bool,
    /// The lines of the log as a host writes them: the level unless it is info, the text, and the fields as JSON.
    pub log: Vec<String>,
    /// All reports.
    pub progress: Vec<(f64, String)>,
    /// New tasks; none if the task is not complete.
    pub enqueued: Vec<Enqueued>,
    /// Publications; none if the task is not complete.
    pub published: Vec<Published>,
    /// What the task's next run starts with.
    pub checkpoint: Option<Vec<u8>>,
    pub kv: Kv,
}

/// A task that the handler has enqueued.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Enqueued {
    pub id: String,
    pub queue: String,
    pub body: Vec<u8>,
    /// JSON, as sdk/ABI.md specifies it.
    pub options: String,
}

/// What the handler has published.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    pub id: String,
    pub topic: String,
    pub body: Vec<u8>,
    /// JSON, as sdk/ABI.md specifies it.
    pub options: String,
}

impl Result {
    /// The result of a complete task. Panics with the error and the log of another.
    #[track_caller]
    pub fn text(&self) -> &str {
        assert!(self.status == Status::Complete, "the task is not complete: {self}");
        std::str::from_utf8(&self.output).expect("the result is not UTF-8")
    }

    /// The result of a complete task as JSON. Panics with the error and the log of another. Needs the feature `serde`.
    #[cfg(feature = "serde")]
    #[track_caller]
    pub fn json<'a, T: serde::Deserialize<'a>>(&'a self) -> T {
        serde_json::from_str(self.text()).expect("the result is not the expected JSON")
    }

    /// The value of a key as text; `None` if there is none. [`Result::kv`] has the bytes.
    pub fn value(&self, bucket: &str, key: &str) -> Option<&str> {
        self.kv.get(bucket)?.get(key).map(|value| std::str::from_utf8(value).expect("the value is not UTF-8"))
    }
}

/// The status, the error and the log, for the message of an assertion.
impl fmt::Display for Result {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.status, self.error)?;
        self.log.iter().try_for_each(|line| write!(f, "\n{line}"))
    }
}

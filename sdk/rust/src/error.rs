use crate::{slot_text, sys};
use std::fmt;
use std::time::Duration;

/// Why the host did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is invalid; the task's log has the details.
    Invalid,
    /// A range does not lie in memory: only functions of [`sys`](crate::sys) can get this wrong.
    Fault,
    /// The manifest or the host does not allow it; the task's log names the line to add.
    Denied,
    /// Nothing has that name.
    NotFound,
    /// Larger than a limit; nothing was done.
    TooBig,
    /// The bucket or the queue is full.
    Quota,
    /// The present value is not the expected one.
    Conflict,
    /// Another host has taken over the task: further work is in vain.
    Lost,
    /// The service behind the function is unavailable; see [`ResultExt::or_retry`].
    Unavailable,
    /// There is no task, as in the function that runs before the first one.
    NoTask,
    /// Too many, or too deep; the task's log has the details.
    Limit,
    /// An answer that this version of the crate does not know.
    Other(i32),
}

impl ErrorKind {
    /// The kind of error that an answer is.
    pub(crate) fn check(answer: i32) -> Result<(), ErrorKind> {
        Err(match answer {
            0.. => return Ok(()),
            -1 => ErrorKind::Invalid,
            -2 => ErrorKind::Fault,
            -3 => ErrorKind::Denied,
            -4 => ErrorKind::NotFound,
            -5 => ErrorKind::TooBig,
            -6 => ErrorKind::Quota,
            -7 => ErrorKind::Conflict,
            -8 => ErrorKind::Lost,
            -9 => ErrorKind::Unavailable,
            -10 => ErrorKind::NoTask,
            -11 => ErrorKind::Limit,
            other => ErrorKind::Other(other),
        })
    }
}

/// A call that the host refused: `kv_set weather/Berlin: EQUOTA: no room for more`. Where the host says why, such as the line to add to
/// the manifest, the text has its reason.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct HostError {
    /// The function of [`sys`](crate::sys) that was called.
    pub function: &'static str,
    /// What it was asked for, such as `weather/Berlin`; empty if the function says it all.
    pub name: String,
    pub kind: ErrorKind,
    /// Why the host refused the call, in one line; empty if it does not tell.
    pub reason: String,
}

/// The field of task_text with why the host last refused a call.
const REFUSAL: i32 = 10;

/// Why the host has refused the call before this one, or a dependency has no result; empty if it does not tell, as an older host.
fn refusal() -> String {
    let size = unsafe { sys::task_text(REFUSAL) };
    if size > 0 { slot_text(Ok(size as u32)).unwrap_or_default() } else { String::new() }
}

impl HostError {
    /// The answer of a function of [`sys`](crate::sys): from 0 up its value.
    pub fn check(function: &'static str, answer: i32) -> Result<u32, HostError> {
        let kind = match ErrorKind::check(answer) {
            Ok(()) => return Ok(answer as u32),
            Err(kind) => kind,
        };
        let told = matches!(kind, ErrorKind::Invalid | ErrorKind::Denied | ErrorKind::Quota | ErrorKind::Unavailable | ErrorKind::Limit)
            || kind == ErrorKind::NotFound && function == "dependency_result";
        let reason = if told { refusal() } else { String::new() };
        Err(HostError { function, name: String::new(), kind, reason })
    }

    /// The error with what was asked for: a name, and before it that of the place where it is, if there is one.
    pub(crate) fn about(self, place: &str, name: &str) -> HostError {
        let name = if place.is_empty() { name.into() } else { format!("{place}/{name}") };
        HostError { name, ..self }
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function)?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        let (code, meaning) = match self.kind {
            ErrorKind::Invalid => ("EINVAL", "an argument is invalid; see the task's log"),
            ErrorKind::Fault => ("EFAULT", "a range outside memory"),
            ErrorKind::Denied => ("EDENIED", "the manifest or the host does not allow it; see the task's log"),
            ErrorKind::NotFound => ("ENOTFOUND", "nothing has that name"),
            ErrorKind::TooBig => ("ETOOBIG", "larger than a limit"),
            ErrorKind::Quota => ("EQUOTA", "no room for more"),
            ErrorKind::Conflict => ("ECONFLICT", "the present value is not the expected one"),
            ErrorKind::Lost => ("ECANCELED", "another host has taken over the task"),
            ErrorKind::Unavailable => ("EAGAIN", "the service is unavailable; see the task's log"),
            ErrorKind::NoTask => ("ESTATE", "there is no task"),
            ErrorKind::Limit => ("ELIMIT", "too many, or too deep; see the task's log"),
            ErrorKind::Other(_) => ("", "an answer that this version of quern does not know"),
        };
        if !self.reason.is_empty() {
            return write!(f, ": {} ({code})", self.reason);
        }
        f.write_str(": ")?;
        if !code.is_empty() {
            write!(f, "{code}: ")?;
        }
        f.write_str(meaning)
    }
}

impl std::error::Error for HostError {}

/// How a task ends that does not complete. `?` makes one of any error: the attempt has failed.
///
/// The message is the task's error, up to 4 KiB. Like anyhow's, this type is no [`std::error::Error`] itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub(crate) status: i32,
    pub(crate) message: String,
    pub(crate) delay: Option<Duration>,
    pub(crate) key: bool,
}

const FAILED: i32 = 1;
const FATAL: i32 = 65;
const RETRY: i32 = 75;

impl Error {
    /// The attempt has failed; the task's retry policy decides about another one.
    pub fn new(message: impl Into<String>) -> Error {
        Error { status: FAILED, message: message.into(), delay: None, key: false }
    }

    /// The task has failed for good: another attempt would fail as well.
    pub fn fatal(message: impl Into<String>) -> Error {
        Error::new(message).with_status(FATAL)
    }

    /// The task is tried again later, because something that it needs is unavailable. This does not count as an attempt.
    pub fn retry(message: impl Into<String>) -> Error {
        Error::new(message).with_status(RETRY)
    }

    /// Sets when the task is tried again, if it is: a year from now at most. Without it the policy decides. An attempt that ends with
    /// [`Error::new`] counts, one with [`Error::retry`] does not.
    pub fn after(self, delay: Duration) -> Error {
        Error { delay: Some(delay), ..self }
    }

    /// Of an error of [`Error::retry`] with a delay: all other waiting tasks of the queue with the key of this one wait as long, such as
    /// those of a customer whom a service answers with 429.
    pub fn for_key(self) -> Error {
        Error { key: true, ..self }
    }

    /// Sets the exit status. 0 would be that of a complete task, and becomes 1.
    pub fn with_status(self, status: i32) -> Error {
        Error { status: if status == 0 { FAILED } else { status }, ..self }
    }
}

/// The message, with those of its causes behind it.
impl<E: std::error::Error> From<E> for Error {
    fn from(err: E) -> Error {
        let mut message = err.to_string();
        let mut cause = err.source();
        while let Some(err) = cause {
            message.push_str(": ");
            message.push_str(&err.to_string());
            cause = err.source();
        }
        Error::new(message)
    }
}

/// Says of an error what becomes of the task: `text.parse::<u32>().or_fatal()?`.
pub trait ResultExt<T> {
    /// The task fails for good.
    fn or_fatal(self) -> Result<T, Error>;
    /// The task is tried again later, when its retry policy says.
    fn or_retry(self) -> Result<T, Error>;
    /// The task is tried again after a delay.
    fn or_retry_after(self, delay: Duration) -> Result<T, Error>;
}

impl<T, E: Into<Error>> ResultExt<T> for Result<T, E> {
    fn or_fatal(self) -> Result<T, Error> {
        self.map_err(|err| err.into().with_status(FATAL))
    }
    fn or_retry(self) -> Result<T, Error> {
        self.map_err(|err| err.into().with_status(RETRY))
    }
    fn or_retry_after(self, delay: Duration) -> Result<T, Error> {
        self.map_err(|err| err.into().with_status(RETRY).after(delay))
    }
}

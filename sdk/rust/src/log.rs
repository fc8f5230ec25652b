use crate::{json::Object, HostError};

/// The level of a line of the task's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Trace,
    Debug,
    Info,
    Warning,
    Error,
}

/// The value of a field of a log line: a text, a number, a truth value, or `Option` of one.
pub trait Field {
    /// Appends the value as JSON.
    fn append(&self, to: &mut String);
}

impl Field for str {
    fn append(&self, to: &mut String) {
        crate::json::quote(to, self);
    }
}

impl Field for String {
    fn append(&self, to: &mut String) {
        crate::json::quote(to, self);
    }
}

impl Field for f64 {
    fn append(&self, to: &mut String) {
        to.push_str(&if self.is_finite() { self.to_string() } else { "null".into() });
    }
}

macro_rules! fields {
    ($($type:ty),*) => { $(
        impl Field for $type {
            fn append(&self, to: &mut String) {
                to.push_str(&self.to_string());
            }
        }
    )* };
}

fields!(i8, i16, i32, i64, u8, u16, u32, u64, isize, usize, bool);

impl<T: Field + ?Sized> Field for &T {
    fn append(&self, to: &mut String) {
        (**self).append(to);
    }
}

impl<T: Field> Field for Option<T> {
    fn append(&self, to: &mut String) {
        match self {
            Some(value) => value.append(to),
            None => to.push_str("null"),
        }
    }
}

/// Writes a line of the task's log: a text, which the host cuts to 64 KiB, and fields of at most 3 KiB as JSON.
///
/// The macros [`trace!`](crate::trace), [`debug!`](crate::debug), [`info!`](crate::info), [`warning!`](crate::warning) and
/// [`error!`](crate::error) do it with format strings.
pub fn log(level: Level, text: &str, fields: &[(&str, &dyn Field)]) -> Result<(), HostError> {
    let mut json = String::new();
    if !fields.is_empty() {
        let mut object = Object::new();
        for (name, value) in fields {
            object.member(name, |to| value.append(to));
        }
        json = object.end();
    }
    // Safety: the ranges are those of strs.
    call!(unsafe { log(level as i32, text.as_ptr(), text.len(), json.as_ptr(), json.len()) }).map(drop)
}

/// Writes a line of the task's log with a level: `log_at!(Level::Info, "done in {ms} ms"; size = size)`. A line that the host
/// refuses is lost.
#[macro_export]
macro_rules! log_at {
    ($level:expr, $format:literal $(, $argument:expr)* $(; $($name:ident = $value:expr),+)? $(,)?) => {{
        let _ = $crate::log($level, &::std::format!($format $(, $argument)*), &[$($((::std::stringify!($name), &$value)),+)?]);
    }};
}

/// Writes a line of the task's log, like [`log_at!`](crate::log_at).
#[macro_export]
macro_rules! trace { ($($line:tt)+) => { $crate::log_at!($crate::Level::Trace, $($line)+) }; }
/// Writes a line of the task's log, like [`log_at!`](crate::log_at).
#[macro_export]
macro_rules! debug { ($($line:tt)+) => { $crate::log_at!($crate::Level::Debug, $($line)+) }; }
/// Writes a line of the task's log, like [`log_at!`](crate::log_at).
#[macro_export]
macro_rules! info { ($($line:tt)+) => { $crate::log_at!($crate::Level::Info, $($line)+) }; }
/// Writes a line of the task's log, like [`log_at!`](crate::log_at).
#[macro_export]
macro_rules! warning { ($($line:tt)+) => { $crate::log_at!($crate::Level::Warning, $($line)+) }; }
/// Writes a line of the task's log, like [`log_at!`](crate::log_at).
#[macro_export]
macro_rules! error { ($($line:tt)+) => { $crate::log_at!($crate::Level::Error, $($line)+) }; }

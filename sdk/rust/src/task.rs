use crate::{fill, slot, slot_text, sys, Error, ErrorKind, HostError};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The task that the handler is called for.
#[derive(Debug)]
pub struct Task {
    input: Vec<u8>,
}

/// A task that another one waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    pub id: String,
    /// `"complete"`, `"failed"`, `"gone"` (deleted), `"open"` (it could not be waited for), or `"waiting"` while it goes on.
    pub end: String,
}

/// Input that is shorter takes one call of the host.
const FIRST: usize = 1 << 10;

impl Task {
    pub(crate) fn read() -> Result<Task, HostError> {
        let mut size = FIRST;
        loop {
            // Safety: fill passes the range of its own buffer.
            let input = fill(size, |to, capacity| call!(unsafe { input_read(0, to, capacity) }))?;
            if input.len() < size {
                return Ok(Task { input });
            }
            size = call!(unsafe { input_size() })? as usize + 1;
        }
    }

    /// The input.
    pub fn input(&self) -> &[u8] {
        &self.input
    }

    /// The input, without a copy of it.
    pub fn into_input(self) -> Vec<u8> {
        self.input
    }

    /// The input as UTF-8. Input of another kind fails the task for good.
    pub fn text(&self) -> Result<&str, Error> {
        std::str::from_utf8(&self.input).map_err(|err| Error::fatal(format!("the input is not UTF-8: {err}")))
    }

    /// The input as JSON. Other input fails the task for good. Needs the feature `serde`.
    #[cfg(feature = "serde")]
    pub fn json<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, Error> {
        serde_json::from_slice(&self.input).map_err(|err| Error::fatal(format!("the input is not the expected JSON: {err}")))
    }

    fn field(&self, field: i32) -> String {
        // Safety: there is no pointer.
        slot_text(call!(unsafe { task_text(field) })).unwrap_or_default()
    }

    fn number(&self, field: i32) -> i64 {
        let mut n = 0;
        // Safety: the pointer is that of an i64. An older host leaves it alone for a field that it does not know.
        unsafe { sys::task_number(field, &mut n) };
        n
    }

    /// The same in every attempt.
    pub fn id(&self) -> String {
        self.field(0)
    }
    pub fn queue(&self) -> String {
        self.field(1)
    }
    /// The owner of the queue.
    pub fn tenant(&self) -> String {
        self.field(2)
    }
    /// The name of this plugin on the host.
    pub fn plugin(&self) -> String {
        self.field(3)
    }
    /// The error of the attempt before; empty in the first one.
    pub fn previous_error(&self) -> String {
        self.field(4)
    }
    /// The ID of the task that enqueued this one, or empty.
    pub fn parent(&self) -> String {
        self.field(5)
    }
    /// The key with which the task was enqueued, or empty.
    pub fn key(&self) -> String {
        self.field(6)
    }
    /// The task's trace as the W3C's header, or empty.
    pub fn traceparent(&self) -> String {
        self.field(7)
    }
    /// The headers with which the task was enqueued, by names in lower case, traceparent among them.
    pub fn headers(&self) -> BTreeMap<String, String> {
        self.field(8).lines().filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.into(), value.into())).collect()
    }
    /// The tasks that this one waited for before it ran, in the order in which they were named.
    pub fn dependencies(&self) -> Result<Vec<Dependency>, HostError> {
        // Safety: there is no pointer.
        let text = match slot_text(call!(unsafe { task_text(9) })) {
            Err(err) if err.kind == ErrorKind::NoTask => return Ok(Vec::new()), // the warm call
            text => text?,
        };
        Ok(text.lines().filter_map(|line| line.split_once(' ')).map(|(id, end)| Dependency { id: id.into(), end: end.into() }).collect())
    }
    /// The result of one of these. [`ErrorKind::NotFound`] if it has none, because it is not complete or is deleted,
    /// [`ErrorKind::Invalid`] if this task did not wait for it, [`ErrorKind::TooBig`] above 16 MiB.
    pub fn result_of(&self, id: &str) -> Result<Vec<u8>, HostError> {
        // Safety: the range is that of a str.
        slot(call!(unsafe { dependency_result(id.as_ptr(), id.len()) })).map_err(|err| err.about("", id))
    }
    /// Counts from 1.
    pub fn attempt(&self) -> u32 {
        self.number(0) as u32
    }
    /// `None` if attempts are unlimited.
    pub fn max_attempts(&self) -> Option<u32> {
        Some(self.number(1) as u32).filter(|&n| n > 0)
    }
    /// How often the task has put itself off by [`Error::retry`], which counts no attempt.
    pub fn reschedules(&self) -> u32 {
        self.number(4) as u32
    }
    /// When the host ends the task; `None` if never.
    pub fn deadline(&self) -> Option<SystemTime> {
        Some(self.number(2)).filter(|&ms| ms > 0).map(|ms| UNIX_EPOCH + Duration::from_millis(ms as u64))
    }
    /// The fuel left; `None` without a limit.
    pub fn fuel(&self) -> Option<u64> {
        Some(self.number(3)).filter(|&n| n < i64::MAX).map(|n| n as u64)
    }
    /// Whether the host is about to stop: return [`Error::retry`] soon, and the task runs elsewhere. Each call asks the host.
    pub fn cancelled(&self) -> bool {
        // Safety: there is no pointer.
        unsafe { sys::cancelled() == 1 }
    }
}

/// What a handler may return. With the feature `serde` also `Json` of anything that serde serializes.
pub trait Output {
    /// Appends it to the task's result.
    fn write(&self) -> Result<(), Error>;
}

/// Appends bytes to the task's result.
fn write(bytes: &[u8]) -> Result<(), Error> {
    // Safety: the range is that of a slice.
    call!(unsafe { output_write(bytes.as_ptr(), bytes.len()) }).map(drop).map_err(|err| Error::new(format!("the result was not accepted: {err}")))
}

/// An empty result.
impl Output for () {
    fn write(&self) -> Result<(), Error> {
        Ok(())
    }
}

macro_rules! outputs {
    ($($type:ty),*) => { $(
        impl Output for $type {
            fn write(&self) -> Result<(), Error> {
                write(self.as_ref())
            }
        }
    )* };
}

outputs!(String, &str, Vec<u8>, &[u8]);

#[cfg(feature = "serde")]
impl<T: serde::Serialize> Output for crate::Json<T> {
    fn write(&self) -> Result<(), Error> {
        write(&serde_json::to_vec(&self.0)?)
    }
}

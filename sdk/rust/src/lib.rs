//! Handlers of [Quern](https://github.com/quern-project/quern) in Rust. A handler is a function that Quern calls once for every
//! task of a queue, in a WebAssembly module:
//!
//! ```
//! use quern::{Error, Task};
//!
//! #[quern::handler]
//! fn greet(task: Task) -> Result<String, Error> {
//!     let name = task.text()?.trim();
//!     if name.is_empty() {
//!         return Err(Error::fatal("the input is no name"));
//!     }
//!     let times = quern::bucket("greeted").increment(name, 1)?;
//!     quern::info!("greeting"; name = name, times = times);
//!     Ok(format!("Hello, {name}!"))
//! }
//! ```
//!
//! What it returns is the task's result. An [`Error`] fails the task, and so does a panic, with its message, file and line.
//!
//! Every task starts from a snapshot of the memory that was taken before the first one: what a task changes in a `static` is
//! gone in the next. With `#[quern::handler(start = load)]` the function `load` runs before the snapshot is taken.
//!
//! Functions return when the host has answered. Most of them need a capability in the plugin's manifest.

/// Calls a function of [`sys`], and names it in the error if the host refuses.
macro_rules! call {
    (unsafe { $function:ident($($argument:expr),*) }) => {
        $crate::HostError::check(stringify!($function), unsafe { $crate::sys::$function($($argument),*) })
    };
}

mod enqueue;
mod error;
pub mod http;
mod json;
mod kv;
mod log;
pub mod sql;
pub mod sys;
mod task;
#[cfg(not(target_arch = "wasm32"))]
pub mod test;
mod time;

pub use enqueue::{Enqueue, Publish};
pub use error::{Error, ErrorKind, HostError, ResultExt};
#[cfg(feature = "serde")]
pub use json::Json;
pub use kv::{bucket, Bucket, Swap};
pub use log::{log, Field, Level};
pub use quern_macros::handler;
pub use sql::{database, Database};
pub use task::{Dependency, Output, Task};
pub use time::{monotonic, now, sleep};

use std::time::Duration;

/// Exports a function as the module's handler; [`handler`] expands to it.
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($handle:path) => {
        $crate::__export!($handle, $crate::__no_start);
    };
    ($handle:path, $start:path) => {
        // All of a crate's exported macros are in one namespace, so that a second handler fails with this name.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! a_plugin_has_one_handler_so_remove_a_quern_handler_attribute { () => {}; }
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            #[no_mangle]
            extern "C" fn _initialize() {
                $crate::__start($start)
            }
            #[no_mangle]
            extern "C" fn quern_handle() -> i32 {
                $crate::__run($handle)
            }
        };
        // Elsewhere the types are checked, and nothing is exported.
        #[cfg(not(target_arch = "wasm32"))]
        const _: fn() -> i32 = || {
            $crate::__start($start);
            $crate::__run($handle)
        };
    };
}

/// The start of a module that names none.
#[doc(hidden)]
pub fn __no_start() {}

/// Runs what a module runs before its first task.
#[doc(hidden)]
pub fn __start(start: impl FnOnce()) {
    #[cfg(target_arch = "wasm32")]
    {
        extern "C" {
            fn __wasm_call_ctors();
        }
        // Safety: the linker makes this function. A module that calls it is no command of the linker's, whose exports would each
        // call it anew.
        unsafe { __wasm_call_ctors() };
        std::panic::set_hook(Box::new(|info| {
            let payload = info.payload();
            let message = payload.downcast_ref::<String>().map(String::as_str).or_else(|| payload.downcast_ref::<&str>().copied());
            let message = message.unwrap_or_default();
            // The place of this one is in the standard library.
            let hint = if message == "time not implemented on this platform" { ": use quern::now or quern::monotonic" } else { "" };
            let text = info.location().map_or_else(String::new, |at| format!("panicked at {at}: {message}{hint}"));
            // Before there is a task, only the log works.
            if __set_error(&text).is_err() {
                let _ = log(Level::Error, &text, &[]);
            }
        }));
    }
    start();
    // The allocator gets its first memory from the host now, and not in every task.
    let room = vec![0u8; 1 << 10];
    // Safety: it is the address of a byte. A read that is volatile keeps the compiler from leaving out the allocation.
    unsafe { std::ptr::read_volatile(room.as_ptr()) };
}

/// Runs the handler on the task, and returns the exit status.
#[doc(hidden)]
pub fn __run<T: Output>(handle: impl FnOnce(Task) -> Result<T, Error>) -> i32 {
    let ended = Task::read().map_err(Error::from).and_then(handle).and_then(|result| result.write());
    let err = match ended {
        Ok(()) => return 0,
        Err(err) => err,
    };
    if !err.message.is_empty() {
        let _ = __set_error(&err.message); // the status says that it failed, if nothing else
    }
    if let Some(delay) = err.delay {
        let delay = millis(delay);
        // Safety: there is no pointer.
        unsafe { sys::retry_after(if err.key { -delay } else { delay }) };
    }
    err.status
}

fn __set_error(message: &str) -> Result<(), HostError> {
    // Safety: the range is that of a str.
    call!(unsafe { error_set(message.as_ptr(), message.len()) }).map(drop)
}

/// Milliseconds, rounded up, and at least 1: to the host 0 is the default, or for ever.
pub(crate) fn millis(d: Duration) -> i64 {
    let up = d.as_millis() + u128::from(d.subsec_nanos() % 1_000_000 > 0);
    i64::try_from(up).unwrap_or(i64::MAX).max(1)
}

/// The answer that a function has put into the slot.
pub(crate) fn slot(answer: Result<u32, HostError>) -> Result<Vec<u8>, HostError> {
    let size = answer? as usize;
    // Safety: fill passes the range of its own buffer.
    fill(size, |to, capacity| call!(unsafe { result_read(0, to, capacity) }))
}

/// A buffer of at most a size, filled by a function that returns how many bytes it has written.
pub(crate) fn fill(size: usize, read: impl FnOnce(*mut u8, usize) -> Result<u32, HostError>) -> Result<Vec<u8>, HostError> {
    let mut bytes = Vec::with_capacity(size);
    let n = read(bytes.as_mut_ptr(), size)? as usize;
    // Safety: the host has written n bytes, which are at most size.
    unsafe { bytes.set_len(n.min(size)) };
    Ok(bytes)
}

/// The text in the slot: hosts answer in UTF-8.
pub(crate) fn slot_text(answer: Result<u32, HostError>) -> Result<String, HostError> {
    slot(answer).map(|bytes| String::from_utf8(bytes).unwrap_or_default())
}

/// None for what has no such name.
pub(crate) fn found<T>(answer: Result<T, HostError>) -> Result<Option<T>, HostError> {
    match answer {
        Err(err) if err.kind == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Reports how much of the task is done, from 0 to 1, and what it is doing, which the host cuts to 1 KiB. The latest report is shown.
pub fn progress(fraction: f64, message: &str) -> Result<(), HostError> {
    // Safety: the range is that of a str.
    call!(unsafe { progress(fraction, message.as_ptr(), message.len()) }).map(drop)
}

/// The last checkpoint, of this run or an earlier one; `None` if there is none.
pub fn checkpoint() -> Result<Option<Vec<u8>>, HostError> {
    // Safety: there is no pointer.
    found(slot(call!(unsafe { checkpoint_load() })))
}

/// Saves at most 1 MiB for the task's next run, and returns when it is durable. Stop on [`ErrorKind::Lost`].
pub fn save_checkpoint(value: impl AsRef<[u8]>) -> Result<(), HostError> {
    let value = value.as_ref();
    // Safety: the range is that of a slice.
    call!(unsafe { checkpoint_save(value.as_ptr(), value.len()) }).map(drop)
}

/// A value of the manifest's section config, also before the first task; `None` if there is none.
pub fn config(name: &str) -> Option<String> {
    // Safety: the range is that of a str.
    slot_text(call!(unsafe { config_get(name.as_ptr(), name.len()) })).ok()
}

/// A secret that the manifest grants. Read it within the task. [`ErrorKind::NotFound`] if the host has none of that name.
pub fn secret(name: &str) -> Result<Vec<u8>, HostError> {
    // Safety: the range is that of a str.
    slot(call!(unsafe { secret_get(name.as_ptr(), name.len()) })).map_err(|err| err.about("", name))
}

/// Fills bytes with random ones. Seed generators within the task: one that was seeded before draws the same numbers in each.
pub fn random(bytes: &mut [u8]) -> Result<(), HostError> {
    for part in bytes.chunks_mut(64 << 10) {
        // Safety: the range is that of a slice.
        call!(unsafe { random(part.as_mut_ptr(), part.len()) })?;
    }
    Ok(())
}

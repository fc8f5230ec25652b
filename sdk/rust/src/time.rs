use crate::{millis, sys, HostError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn clock(id: i32) -> Duration {
    let mut nanoseconds = 0;
    // Safety: the pointer is that of an i64. Both clocks always answer.
    unsafe { sys::clock(id, &mut nanoseconds) };
    Duration::from_nanos(nanoseconds.max(0) as u64)
}

/// The time. `SystemTime::now` panics on wasm32-unknown-unknown.
pub fn now() -> SystemTime {
    UNIX_EPOCH + clock(0)
}

/// The time of a clock that never goes back, from any beginning.
pub fn monotonic() -> Duration {
    clock(1)
}

/// Waits; other tasks run meanwhile.
pub fn sleep(d: Duration) -> Result<(), HostError> {
    // Safety: there is no pointer.
    call!(unsafe { sleep(if d.is_zero() { 0 } else { millis(d) }) }).map(drop)
}

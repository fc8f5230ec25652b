//! Calls with any pointers and numbers, which the typed functions do not allow.

use crate::words::{bytes, number, Words};
use quern::sys;

/// Where & points to.
static mut SCRATCH: [u8; 1 << 17] = [0; 1 << 17];

fn scratch() -> *mut u8 {
    unsafe { std::ptr::addr_of_mut!(SCRATCH) as *mut u8 }
}

/// The first bytes of the memory that & points to.
pub fn peek(size: usize) -> Vec<u8> {
    // Safety: no other thread, and no call of the host under way, writes there.
    unsafe { std::slice::from_raw_parts(scratch(), size.min(1 << 17)).to_vec() }
}

/// Calls the function that the second word names, and returns its answer.
pub fn call(words: Words) -> i32 {
    let (mut numbers, mut texts) = (Vec::new(), Vec::new());
    for word in words.from(2).0 {
        if let Some(text) = word.strip_prefix('@') {
            let text = bytes(text);
            numbers.extend([text.as_ptr() as usize as i64, text.len() as i64]);
            texts.push(text); // until the call is over
        } else if *word == "&" {
            numbers.push(scratch() as usize as i64);
        } else {
            numbers.push(number(word));
        }
    }
    let fraction = if words.word(2) == "nan" { f64::NAN } else { words.number(2) as f64 / 100.0 };
    numbers.resize(9, 0);
    // Safety: the host checks every range. The guest is one of a test, which writes into its own scratch memory only.
    unsafe { dispatch(words.word(1), fraction, &numbers) }
}

unsafe fn dispatch(name: &str, fraction: f64, numbers: &[i64]) -> i32 {
    let long = |i: usize| numbers[i];
    let int = |i: usize| numbers[i] as i32;
    let size = |i: usize| numbers[i] as u32 as usize;
    let ptr = |i: usize| numbers[i] as u32 as usize as *const u8;
    let to = |i: usize| numbers[i] as u32 as usize as *mut u8;
    match name {
        "result_read" => sys::result_read(int(0) as u32, to(1), size(2)),
        "result_size" => sys::result_size(),
        "input_size" => sys::input_size(),
        "input_read" => sys::input_read(int(0) as u32, to(1), size(2)),
        "output_write" => sys::output_write(ptr(0), size(1)),
        "error_set" => sys::error_set(ptr(0), size(1)),
        "retry_after" => sys::retry_after(long(0)),
        "task_text" => sys::task_text(int(0)),
        "task_number" => sys::task_number(int(0), to(1).cast()),
        "cancelled" => sys::cancelled(),
        "log" => sys::log(int(0), ptr(1), size(2), ptr(3), size(4)),
        "progress" => sys::progress(fraction, ptr(1), size(2)),
        "checkpoint_save" => sys::checkpoint_save(ptr(0), size(1)),
        "checkpoint_load" => sys::checkpoint_load(),
        "kv_get" => sys::kv_get(ptr(0), size(1), ptr(2), size(3)),
        "kv_set" => sys::kv_set(ptr(0), size(1), ptr(2), size(3), ptr(4), size(5), long(6)),
        "kv_delete" => sys::kv_delete(ptr(0), size(1), ptr(2), size(3)),
        "kv_increment" => sys::kv_increment(ptr(0), size(1), ptr(2), size(3), long(4), to(5).cast()),
        "kv_swap" => sys::kv_swap(ptr(0), size(1), ptr(2), size(3), ptr(4), size(5), ptr(6), size(7), long(8)),
        "kv_list" => sys::kv_list(ptr(0), size(1), ptr(2), size(3), ptr(4), size(5), int(6)),
        "http" => sys::http(ptr(0), size(1), ptr(2), size(3)),
        "sql" => sys::sql(ptr(0), size(1), ptr(2), size(3), ptr(4), size(5)),
        "sql_commit" => sys::sql_commit(ptr(0), size(1), ptr(2), size(3), ptr(4), size(5)),
        "sql_rollback" => sys::sql_rollback(ptr(0), size(1)),
        "sql_step" => sys::sql_step(ptr(0), size(1), ptr(2), size(3)),
        "config_get" => sys::config_get(ptr(0), size(1)),
        "secret_get" => sys::secret_get(ptr(0), size(1)),
        "clock" => sys::clock(int(0), to(1).cast()),
        "sleep" => sys::sleep(long(0)),
        "random" => sys::random(to(0), size(1)),
        "enqueue" => sys::enqueue(ptr(0), size(1), ptr(2), size(3), ptr(4), size(5)),
        "dependency_result" => sys::dependency_result(ptr(0), size(1)),
        _ => -1,
    }
}

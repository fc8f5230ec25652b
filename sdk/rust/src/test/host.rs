//! The functions of quern_v1 for a task of a test. Their errors are those of a host.

use super::{Enqueued, Published, Request, Result as Left, Status, Task};
use crate::http::{read_headers, write_headers};
use crate::json::{Object, Reader};
use crate::ErrorKind;
use std::cell::RefCell;
use std::collections::hash_map::RandomState;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

thread_local! {
    /// The host of the task that runs in this thread.
    static CURRENT: RefCell<Option<Host>> = RefCell::new(None);
}

/// What a function returns to the handler.
type Returned = Result<i32, ErrorKind>;
type Ptr = *const u8;

/// Calls a function of the host.
pub(crate) fn call(function: &str, f: impl FnOnce(&mut Host) -> Returned) -> i32 {
    let answer = CURRENT.with(|current| match current.try_borrow_mut().as_deref_mut() {
        Ok(Some(host)) => host.task.faults.get(function).map_or(Ok(0), |&err| Err(err)).and_then(|_| f(host)),
        _ => Err(ErrorKind::NoTask), // also for the function that answers a request
    });
    answer.unwrap_or_else(|err| match err {
        ErrorKind::Other(code) => code,
        known => (-11..0).find(|&code| ErrorKind::check(code) == Err(known)).expect("it has a code"),
    })
}

pub(crate) struct Host {
    task: Task,
    begun: Instant,
    slept: Duration,
    slot: Vec<u8>,
    refusal: String,
    left: Left,
}

/// Puts back the host from before, also when the handler panics.
struct Before(Option<Host>);

impl Drop for Before {
    fn drop(&mut self) {
        CURRENT.with(|current| current.replace(self.0.take()));
    }
}

impl Host {
    pub(crate) fn run(task: Task, handler: impl FnOnce() -> i32) -> Left {
        let left = Left {
            status: Status::Complete,
            output: Vec::new(),
            error: String::new(),
            delay: None,
            key: false,
            log: Vec::new(),
            progress: Vec::new(),
            enqueued: Vec::new(),
            published: Vec::new(),
            checkpoint: task.checkpoint.clone(),
            kv: task.kv.clone(),
        };
        let host = Host { task, begun: Instant::now(), slept: Duration::ZERO, slot: Vec::new(), refusal: String::new(), left };
        let _before = Before(CURRENT.with(|current| current.replace(Some(host))));
        let status = handler();
        let mut left = CURRENT.with(|current| current.take()).expect("a run ends once").left;
        left.status = match status {
            0 => return left,
            65 => Status::Fatal,
            75 => Status::Retry,
            _ => Status::Failed,
        };
        left.output.clear();
        left.enqueued.clear();
        left.published.clear();
        left
    }

    fn answer(&mut self, value: impl Into<Vec<u8>>) -> Returned {
        self.slot = value.into();
        Ok(self.slot.len() as i32)
    }

    fn denied<T>(&mut self, what: &str, grant: &str) -> Result<T, ErrorKind> {
        self.refuse(format!("the test grants no {what}: add {grant} to its Task"))
    }

    /// There is no client of PostgreSQL here.
    fn no_database<T>(&mut self, name: &str) -> Result<T, ErrorKind> {
        self.refuse(format!("a test has no database {name:?}: test the plugin by `quern plugin test --database {name}=URL`"))
    }

    fn refuse<T>(&mut self, why: String) -> Result<T, ErrorKind> {
        self.refusal = why;
        self.left.log.push(format!("warning: {}", self.refusal));
        Err(ErrorKind::Denied)
    }

    unsafe fn bucket(&mut self, at: Ptr, size: usize) -> Result<&mut BTreeMap<String, Vec<u8>>, ErrorKind> {
        let name = name(at, size)?;
        if !self.left.kv.contains_key(name) {
            return self.denied(&format!("bucket {name:?}"), &format!(".bucket({name:?}, &[])"));
        }
        Ok(self.left.kv.get_mut(name).expect("it is there"))
    }
}

unsafe fn bytes<'a>(at: Ptr, size: usize) -> &'a [u8] {
    match size {
        0 => &[],
        _ => std::slice::from_raw_parts(at, size),
    }
}

unsafe fn text<'a>(at: Ptr, size: usize) -> Result<&'a str, ErrorKind> {
    std::str::from_utf8(bytes(at, size)).map_err(|_| ErrorKind::Invalid)
}

/// The name of a bucket or a key.
unsafe fn name<'a>(at: Ptr, size: usize) -> Result<&'a str, ErrorKind> {
    text(at, size).and_then(|name| match name.len() {
        1..=256 if !name.contains(char::is_control) => Ok(name),
        _ => Err(ErrorKind::Invalid),
    })
}

/// A value of the store.
unsafe fn value(at: Ptr, size: usize, ttl: i64) -> Result<Vec<u8>, ErrorKind> {
    match size {
        _ if ttl < 0 => Err(ErrorKind::Invalid),
        0..=0x80000 => Ok(bytes(at, size).into()),
        _ => Err(ErrorKind::TooBig),
    }
}

fn copy(from: &[u8], offset: u32, to: *mut u8, capacity: usize) -> Returned {
    let from = from.get(offset as usize..).unwrap_or_default();
    let n = from.len().min(capacity);
    // Safety: the caller's range has room for its capacity.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, n) };
    Ok(n as i32)
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        Some((head, tail)) => name.strip_prefix(head).map_or(false, |rest| rest.ends_with(tail)),
        None => pattern == name,
    }
}

// Safety of all: the ranges are those of slices, as sys demands.
#[allow(clippy::too_many_arguments)]
impl Host {
    pub(crate) unsafe fn result_read(&mut self, offset: u32, to: *mut u8, capacity: usize) -> Returned {
        copy(&self.slot, offset, to, capacity)
    }
    pub(crate) unsafe fn result_size(&mut self) -> Returned {
        Ok(self.slot.len() as i32)
    }
    pub(crate) unsafe fn input_size(&mut self) -> Returned {
        Ok(self.task.input.len() as i32)
    }
    pub(crate) unsafe fn input_read(&mut self, offset: u32, to: *mut u8, capacity: usize) -> Returned {
        copy(&self.task.input, offset, to, capacity)
    }
    pub(crate) unsafe fn output_write(&mut self, data: Ptr, size: usize) -> Returned {
        self.left.output.extend(bytes(data, size));
        Ok(0)
    }
    pub(crate) unsafe fn error_set(&mut self, message: Ptr, size: usize) -> Returned {
        self.left.error = text(message, size)?.into();
        Ok(0)
    }
    pub(crate) unsafe fn retry_after(&mut self, ms: i64) -> Returned {
        self.left.delay = Some(Duration::from_millis(ms.unsigned_abs()));
        self.left.key = ms < 0;
        Ok(0)
    }
    pub(crate) unsafe fn task_text(&mut self, field: i32) -> Returned {
        let text = match field {
            10 => self.refusal.clone(),
            _ => self.task.texts.get(field as usize).ok_or(ErrorKind::Invalid)?.clone(),
        };
        self.answer(text)
    }
    pub(crate) unsafe fn task_number(&mut self, field: i32, number: *mut i64) -> Returned {
        *number = *self.task.numbers.get(field as usize).ok_or(ErrorKind::Invalid)?;
        Ok(0)
    }
    pub(crate) unsafe fn cancelled(&mut self) -> Returned {
        Ok(self.task.cancelled.into())
    }
    pub(crate) unsafe fn log(&mut self, level: i32, line: Ptr, size: usize, fields: Ptr, fields_size: usize) -> Returned {
        let level = ["trace: ", "debug: ", "", "warning: ", "error: "].get(level as usize).ok_or(ErrorKind::Invalid)?;
        let (line, fields) = (text(line, size)?, text(fields, fields_size)?);
        self.left.log.push(format!("{level}{line} {fields}").trim_end().into());
        Ok(0)
    }
    pub(crate) unsafe fn progress(&mut self, fraction: f64, message: Ptr, size: usize) -> Returned {
        if fraction.is_nan() {
            return Err(ErrorKind::Invalid);
        }
        self.left.progress.push((fraction.clamp(0.0, 1.0), text(message, size)?.into()));
        Ok(0)
    }
    pub(crate) unsafe fn checkpoint_save(&mut self, data: Ptr, size: usize) -> Returned {
        if size > 1 << 20 {
            return Err(ErrorKind::TooBig);
        }
        self.left.checkpoint = Some(bytes(data, size).into());
        Ok(0)
    }
    pub(crate) unsafe fn checkpoint_load(&mut self) -> Returned {
        let value = self.left.checkpoint.clone().ok_or(ErrorKind::NotFound)?;
        self.answer(value)
    }
    pub(crate) unsafe fn enqueue(&mut self, queue: Ptr, queue_size: usize, body: Ptr, body_size: usize, options: Ptr, options_size: usize) -> Returned {
        let (queue, body, options) = (text(queue, queue_size)?.to_string(), bytes(body, body_size).to_vec(), text(options, options_size)?.to_string());
        let (mut given, mut topic) = (String::new(), String::new());
        Reader::new(&options).object(|r, name| match name.as_str() {
            "id" => r.text().map(|id| given = id),
            "topic" => r.text().map(|name| topic = name),
            _ => r.skip(),
        });
        let or = |made: String| if given.is_empty() { made } else { given.clone() };
        if queue.is_empty() && !topic.is_empty() {
            if !self.task.topics.iter().any(|pattern| matches(pattern, &topic)) {
                return self.denied(&format!("topic {topic:?}"), &format!(".topics(&[{topic:?}])"));
            }
            let id = or(format!("publication-{}", self.left.published.len() + 1));
            self.left.published.push(Published { id: id.clone(), topic, body, options });
            return self.answer(id);
        }
        if !self.task.queues.iter().any(|pattern| matches(pattern, &queue)) {
            return self.denied(&format!("queue {queue:?}"), &format!(".queues(&[{queue:?}])"));
        }
        let id = or(format!("child-{}", self.left.enqueued.len() + 1));
        self.left.enqueued.push(Enqueued { id: id.clone(), queue, body, options });
        self.answer(id)
    }
    pub(crate) unsafe fn dependency_result(&mut self, id: Ptr, size: usize) -> Returned {
        let id = text(id, size)?;
        match self.task.results.get(id).cloned().ok_or(ErrorKind::Invalid)? {
            Some(result) => self.answer(result),
            None => {
                self.refusal = format!("task {id} failed and has no result");
                Err(ErrorKind::NotFound)
            }
        }
    }
    pub(crate) unsafe fn kv_get(&mut self, b: Ptr, b_size: usize, key: Ptr, key_size: usize) -> Returned {
        let key = name(key, key_size)?;
        let value = self.bucket(b, b_size)?.get(key).cloned().ok_or(ErrorKind::NotFound)?;
        self.answer(value)
    }
    pub(crate) unsafe fn kv_set(&mut self, b: Ptr, b_size: usize, key: Ptr, key_size: usize, new: Ptr, new_size: usize, ttl: i64) -> Returned {
        let (key, new) = (name(key, key_size)?, value(new, new_size, ttl)?);
        self.bucket(b, b_size)?.insert(key.into(), new);
        Ok(0)
    }
    pub(crate) unsafe fn kv_delete(&mut self, b: Ptr, b_size: usize, key: Ptr, key_size: usize) -> Returned {
        let key = name(key, key_size)?;
        Ok(self.bucket(b, b_size)?.remove(key).is_some().into())
    }
    pub(crate) unsafe fn kv_increment(&mut self, b: Ptr, b_size: usize, key: Ptr, key_size: usize, delta: i64, sum: *mut i64) -> Returned {
        let key = name(key, key_size)?;
        let bucket = self.bucket(b, b_size)?;
        let old = bucket.get(key).map_or(Some(0), |old| {
            let number: i64 = std::str::from_utf8(old).ok()?.parse().ok()?;
            Some(number).filter(|n| n.to_string().as_bytes() == old)
        });
        *sum = old.ok_or(ErrorKind::Conflict)?.checked_add(delta).ok_or(ErrorKind::Limit)?;
        bucket.insert(key.into(), (*sum).to_string().into());
        Ok(0)
    }
    pub(crate) unsafe fn kv_swap(&mut self, b: Ptr, b_size: usize, key: Ptr, key_size: usize, old: Ptr, old_size: usize, new: Ptr, new_size: usize, ttl: i64) -> Returned {
        let (key, new) = (name(key, key_size)?, value(new, new_size, ttl)?);
        let old = Some(old_size).filter(|&size| size != usize::MAX).map(|size| bytes(old, size));
        let bucket = self.bucket(b, b_size)?;
        match bucket.get(key).cloned() {
            present if present.as_deref() == old => bucket.insert(key.into(), new),
            Some(present) => return self.answer(present).and(Err(ErrorKind::Conflict)),
            None => return Err(ErrorKind::NotFound),
        };
        Ok(0)
    }
    pub(crate) unsafe fn kv_list(&mut self, b: Ptr, b_size: usize, prefix: Ptr, prefix_size: usize, after: Ptr, after_size: usize, limit: i32) -> Returned {
        let (prefix, after) = (text(prefix, prefix_size)?, text(after, after_size)?);
        let bucket = self.bucket(b, b_size)?;
        if !(1..=1000).contains(&limit) {
            return Err(ErrorKind::Invalid);
        }
        let keys = bucket.keys().filter(|key| key.starts_with(prefix) && (after.is_empty() || key.as_str() > after)).take(limit as usize);
        let list: Vec<u8> = keys.flat_map(|key| (key.len() as u32).to_le_bytes().into_iter().chain(key.bytes())).collect();
        self.answer(list)
    }
    pub(crate) unsafe fn http(&mut self, head: Ptr, head_size: usize, body: Ptr, body_size: usize) -> Returned {
        let mut request = Request { method: "GET".into(), body: bytes(body, body_size).into(), ..Request::default() };
        let read = Reader::new(text(head, head_size)?).object(|r, name| {
            match name.as_str() {
                "method" => request.method = r.text()?,
                "url" => request.url = r.text()?,
                "headers" => request.headers = read_headers(r)?,
                _ => r.skip()?,
            }
            Some(())
        });
        read.ok_or(ErrorKind::Invalid)?;
        let answer = match &mut self.task.http {
            Some(answer) => answer(request),
            None => return self.denied("HTTP", ".http(|request| quern::http::Answer::new(200, \"\"))"),
        };
        let mut head = Object::new();
        head.number("status", answer.status.into());
        head.object("headers", write_headers(&answer.headers));
        let head = head.end();
        self.answer([&(head.len() as u32).to_le_bytes(), head.as_bytes(), &answer.body].concat())
    }
    pub(crate) unsafe fn sql(&mut self, database: Ptr, size: usize, _: Ptr, _: usize, _: Ptr, _: usize) -> Returned {
        self.no_database(text(database, size)?)
    }
    pub(crate) unsafe fn sql_commit(&mut self, database: Ptr, size: usize, _: Ptr, _: usize, _: Ptr, _: usize) -> Returned {
        self.no_database(text(database, size)?)
    }
    pub(crate) unsafe fn sql_rollback(&mut self, database: Ptr, size: usize) -> Returned {
        self.no_database(text(database, size)?)
    }
    pub(crate) unsafe fn sql_step(&mut self, database: Ptr, size: usize, _: Ptr, _: usize) -> Returned {
        self.no_database(text(database, size)?)
    }
    pub(crate) unsafe fn config_get(&mut self, name: Ptr, size: usize) -> Returned {
        let value = self.task.config.get(text(name, size)?).cloned().ok_or(ErrorKind::NotFound)?;
        self.answer(value)
    }
    pub(crate) unsafe fn secret_get(&mut self, name: Ptr, size: usize) -> Returned {
        let name = text(name, size)?;
        match self.task.secrets.get(name).cloned() {
            Some(value) => self.answer(value),
            None => self.denied(&format!("secret {name:?}"), &format!(".secret({name:?}, \"\")")),
        }
    }
    /// Sleep moves it.
    pub(crate) unsafe fn clock(&mut self, id: i32, nanoseconds: *mut i64) -> Returned {
        let now = match id {
            0 => SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970"),
            1 => self.begun.elapsed(),
            _ => return Err(ErrorKind::Invalid),
        };
        *nanoseconds = (now + self.slept).as_nanos() as i64;
        Ok(0)
    }
    /// Returns at once.
    pub(crate) unsafe fn sleep(&mut self, ms: i64) -> Returned {
        self.slept += Duration::from_millis(u64::try_from(ms).map_err(|_| ErrorKind::Invalid)?);
        Ok(0)
    }
    pub(crate) unsafe fn random(&mut self, to: *mut u8, size: usize) -> Returned {
        for i in 0..size {
            *to.add(i) = RandomState::new().build_hasher().finish() as u8;
        }
        Ok(0)
    }
}

//! The guest of the conformance kit in Rust: it makes the calls that its input lists, one a line, and writes what each was
//! answered. README.md, one folder up, describes them.

mod databases;
mod raw;
mod words;

use quern::{http, Enqueue, Publish, Error, ErrorKind, Field, HostError, Level, Output, ResultExt, Swap, Task};
use std::sync::Mutex;
use std::time::{Duration, UNIX_EPOCH};
use words::Words;

/// What a call was answered, in pieces.
type Answer = Result<Vec<Vec<u8>>, HostError>;

/// Answers of longer pieces are written as their length.
const SHOWN: usize = 64;

fn name(err: HostError) -> &'static str {
    match err.kind {
        ErrorKind::Invalid => "EINVAL",
        ErrorKind::Fault => "EFAULT",
        ErrorKind::Denied => "EDENIED",
        ErrorKind::NotFound => "ENOTFOUND",
        ErrorKind::TooBig => "ETOOBIG",
        ErrorKind::Quota => "EQUOTA",
        ErrorKind::Conflict => "ECONFLICT",
        ErrorKind::Lost => "ECANCELED",
        ErrorKind::Unavailable => "EAGAIN",
        ErrorKind::NoTask => "ESTATE",
        ErrorKind::Limit => "ELIMIT",
        _ => "unknown",
    }
}

/// Writes a line of the result: a verb, the answer and its pieces.
fn tell(verb: &str, answer: &str, pieces: &[Vec<u8>]) -> Result<(), Error> {
    let mut line = format!("{verb} {answer}").into_bytes();
    for piece in pieces {
        line.push(b' ');
        if piece.len() > SHOWN {
            line.extend(format!("#{}", piece.len()).bytes());
        } else {
            line.extend(piece);
        }
    }
    line.push(b'\n');
    line.write()
}

fn tell_answer(verb: &str, answer: Answer) -> Result<(), Error> {
    match answer {
        Ok(pieces) => tell(verb, "ok", &pieces),
        Err(err) => tell(verb, name(err), &[]),
    }
}

fn text(value: impl ToString) -> Answer {
    Ok(vec![value.to_string().into()])
}

fn nothing(answer: Result<(), HostError>) -> Answer {
    answer.map(|()| Vec::new())
}

/// What the host answers with a code below 0.
fn refused(code: i32) -> Answer {
    HostError::check("refused", code).and_then(text)
}

fn found(value: Option<Vec<u8>>) -> Answer {
    value.map(|value| vec![value]).map_or_else(|| refused(-4), Ok)
}

// ---- The start ----

static STARTED: Mutex<Vec<(&str, Answer)>> = Mutex::new(Vec::new());
static REMEMBERED: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn start() {
    let seen = |answer: i32| HostError::check("start", answer).map(|_| Vec::new());
    *STARTED.lock().unwrap() = vec![
        ("config", quern::config("size").map(|_| Vec::new()).map_or_else(|| refused(-4), Ok)),
        ("log", nothing(quern::log(Level::Info, "start", &[]))),
        ("random", nothing(quern::random(&mut [0]))),
        ("clock", if quern::now() > UNIX_EPOCH { Ok(Vec::new()) } else { refused(-10) }),
        ("get", quern::bucket("kit").get("start").map(|_| Vec::new())),
        ("secret", quern::secret("api_key").map(|_| Vec::new())),
        ("save", nothing(quern::save_checkpoint("start"))),
        ("load", quern::checkpoint().map(|_| Vec::new())),
        // Safety: there are no pointers.
        ("size", seen(unsafe { quern::sys::input_size() })),
        ("text", seen(unsafe { quern::sys::task_text(0) })),
    ];
}

// ---- Calls ----

/// Makes a call and writes its answer. An error, or true, ends the task.
fn call(task: &Task, w: Words) -> Result<bool, Error> {
    let verb = w.word(0);
    let answer = match verb {
        "write" => return w.bytes(1).write().map(|()| false),
        "end" => return end(w.number(1) as i32, w.text(2)).map(|()| true),
        "retry" => {
            let again = Error::retry(w.text(2)).after(Duration::from_millis(w.number(1).unsigned_abs()));
            return Err(if w.number(1) < 0 { again.for_key() } else { again });
        }
        "trap" => std::process::abort(),
        "raw" => {
            let answer = HostError::check("raw", raw::call(w)).and_then(text);
            return tell_answer(w.word(1), answer).map(|()| false);
        }
        "await" => wait(task)?,
        "swap" => match swap(w) {
            Ok(Swap::Present(value)) => return tell(verb, "ECONFLICT", &[value]).map(|()| false),
            Ok(Swap::Absent) => refused(-7),
            other => nothing(other.map(drop)),
        },
        "sql" | "kinds" | "commit" | "rollback" | "step" => return databases::call(w).map(|()| false),
        "peek" => Ok(vec![raw::peek(w.number(1) as usize)]),
        "remember" => Ok(vec![std::mem::replace(&mut *REMEMBERED.lock().unwrap(), w.bytes(1))]),
        "start" => STARTED.lock().unwrap().iter().find(|(name, _)| *name == w.word(1)).map_or_else(|| refused(-1), |(_, a)| a.clone()),
        _ => match of_task(task, verb, w).or_else(|| of_store(verb, w)).or_else(|| of_host(verb, w)) {
            Some(answer) => answer,
            None => return tell(verb, "is no call of this guest", &[]).map(|()| false),
        },
    };
    tell_answer(verb, answer).map(|()| false)
}

fn end(status: i32, why: String) -> Result<(), Error> {
    match status {
        0 => {
            // Safety: the range is that of a String.
            unsafe { quern::sys::error_set(why.as_ptr(), why.len()) };
            Ok(())
        }
        65 => Err(Error::fatal(why)),
        75 => Err::<(), _>(Error::new(why)).or_retry(),
        status => Err(Error::new(why).with_status(status)),
    }
}

fn of_task(task: &Task, verb: &str, w: Words) -> Option<Answer> {
    Some(match verb {
        "size" => text(task.input().len()),
        "sum" => text(task.input().iter().fold(2166136261u32, |sum, &b| (sum ^ u32::from(b)).wrapping_mul(16777619))),
        "text" => text(match w.number(1) {
            0 => task.id(),
            1 => task.queue(),
            2 => task.tenant(),
            3 => task.plugin(),
            4 => task.previous_error(),
            5 => task.parent(),
            6 => task.key(),
            _ => task.traceparent(),
        }),
        "header" => text(task.headers().get(&w.text(1)).map_or("", String::as_str)),
        "number" if w.number(1) == 1 => text(task.max_attempts().unwrap_or(0)),
        "number" if w.number(1) == 4 => text(task.reschedules()),
        "number" => text(task.attempt()),
        // In minutes: the host's clock and Redis's differ.
        "deadline" => text(task.deadline().map_or(0, |at| (at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() + 30) / 60)),
        "cancelled" => text(i32::from(task.cancelled())),
        "save" => nothing(quern::save_checkpoint(w.bytes(1))),
        "load" => quern::checkpoint().and_then(found),
        "progress" => nothing(quern::progress(w.number(1) as f64 / 100.0, &w.text(2))),
        "log" => log(w),
        "dependencies" => task.dependencies().map(|all| all.into_iter().map(|d| format!("{} {}", d.id, d.end).into()).collect()),
        "result" => task.result_of(&w.text(1)).map(|result| vec![result]),
        "enqueue" => enqueue(w),
        "publish" => publish(w),
        _ => return None,
    })
}

fn wait(task: &Task) -> Result<Answer, HostError> {
    quern::progress(0.0, "waiting")?;
    while !task.cancelled() {
        quern::sleep(Duration::from_millis(5))?;
    }
    Ok(Ok(Vec::new()))
}

fn log(w: Words) -> Answer {
    const LEVELS: [Level; 5] = [Level::Trace, Level::Debug, Level::Info, Level::Warning, Level::Error];
    let fields = w.pairs(3);
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value as &dyn Field)).collect();
    nothing(quern::log(LEVELS[w.number(1) as usize], &w.text(2), &fields))
}

fn of_store(verb: &str, w: Words) -> Option<Answer> {
    let (name, key) = (w.text(1), w.text(2));
    let bucket = quern::bucket(&name);
    Some(match verb {
        "get" => bucket.get(&key).and_then(found),
        "set" => nothing(bucket.set_for(&key, w.bytes(3), w.time(4))),
        "delete" => bucket.delete(&key).and_then(|was| text(i32::from(was))),
        "increment" => bucket.increment(&key, w.number(3)).and_then(text),
        "list" => bucket.list(&key, &w.text(3), w.number(4) as u32).map(|keys| keys.into_iter().map(String::into_bytes).collect()),
        _ => return None,
    })
}

fn swap(w: Words) -> Result<Swap, HostError> {
    let old = w.bytes(3);
    let old = if w.word(3) == "!" { None } else { Some(&old[..]) };
    quern::bucket(&w.text(1)).swap(&w.text(2), old, w.bytes(4), w.time(5))
}

fn of_host(verb: &str, w: Words) -> Option<Answer> {
    Some(match verb {
        "http" => request(w),
        "config" => found(quern::config(&w.text(1)).map(String::into_bytes)),
        "secret" => quern::secret(&w.text(1)).map(|secret| vec![secret]),
        "clock" => clock(w),
        "sleep" => {
            let (before, time) = (quern::monotonic(), w.time(1).unwrap_or_default());
            match quern::sleep(time) {
                Ok(()) if quern::monotonic() - before < time => text("too short"),
                answer => nothing(answer),
            }
        }
        "random" => {
            let mut bytes = [0; 8];
            quern::random(&mut bytes).and_then(|()| text(bytes.map(|b| format!("{b:02x}")).concat()))
        }
        _ => return None,
    })
}

fn request(w: Words) -> Answer {
    let mut request = http::Request::new(w.text(1), w.text(2)).header("X-Ask", &w.text(3)).body(w.bytes(4));
    if let Some(time) = w.time(5) {
        request = request.timeout(time);
    }
    let answer = request.send()?;
    let asked = answer.header("X-Answer").unwrap_or_default().into();
    Ok(vec![answer.status.to_string().into(), asked, answer.body])
}

fn clock(w: Words) -> Answer {
    let (now, before) = (quern::now(), quern::monotonic());
    quern::sleep(Duration::from_millis(1))?;
    match w.number(1) {
        0 if now < UNIX_EPOCH + Duration::from_secs(1_700_000_000) => text("too early"),
        1 if quern::monotonic() - before < Duration::from_millis(1) => text("back"),
        _ => Ok(Vec::new()),
    }
}

fn enqueue(w: Words) -> Answer {
    let mut task = Enqueue::new(w.text(1), w.bytes(2));
    let pairs = w.pairs(3);
    let number_of = |name: &str| pairs.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| words::number(value) as u32);
    for (option, value) in &pairs {
        let number = words::number(value);
        let (n, time) = (number as u32, Duration::from_millis(number as u64));
        task = match option.as_str() {
            "id" => task.id(value),
            "key" => task.key(value),
            "label" => task.label("kit", value),
            "header" => task.header("kit", value),
            "unique" => task.unique(value, None),
            "after" => task.after(&[value]),
            "when" => task.when(value),
            "priority" => task.priority(n),
            "delay" => task.delay(time),
            "at" => task.at(UNIX_EPOCH + time),
            "attempts" => task.max_attempts(n),
            "timeout" => task.timeout(time),
            "fair_key" => task.fair(value, number_of("fair_weight")),
            "concurrency_key" => task.concurrency(value, number_of("max_concurrent")),
            _ => task,
        };
    }
    task.send().and_then(text)
}

fn publish(w: Words) -> Answer {
    let options = w.pairs(3);
    let topic = options.iter().find(|(name, _)| name == "topic").map_or("", |(_, topic)| topic);
    let mut publication = Publish::new(topic, w.bytes(2));
    for (option, value) in &options {
        publication = match option.as_str() {
            "id" => publication.id(value),
            "attribute" => publication.attribute("kit", value),
            _ => publication,
        };
    }
    publication.send().and_then(text)
}

// ---- The handler ----

#[quern::handler(start = start)]
fn handle(task: Task) -> Result<(), Error> {
    for line in task.text()?.split('\n') {
        let words: Vec<&str> = line.split(' ').collect();
        let mut w = Words(&words);
        match w.word(0) {
            "on" if w.number(1) != i64::from(task.attempt()) => continue, // for one attempt alone
            "on" => w = w.from(2),
            "once" if quern::checkpoint()?.is_some() => continue, // for a run that finds no checkpoint, and leaves one
            "once" => {
                quern::save_checkpoint("once")?;
                w = w.from(1);
            }
            _ => {}
        }
        if w.word(0).is_empty() || w.word(0).starts_with('#') {
            continue;
        }
        if call(&task, w)? {
            break;
        }
    }
    Ok(())
}

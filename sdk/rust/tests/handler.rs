//! What a test of a handler gives to it, and what it gets from it.

use quern::http::{self, Answer};
use quern::test::{Status, Task};
use quern::{Enqueue, Error, ErrorKind, HostError, Publish, ResultExt, Swap};
use std::time::Duration;

type Ended = Result<(), Error>;

fn kind<T>(answer: Result<T, HostError>) -> Result<T, ErrorKind> {
    answer.map_err(|err| err.kind)
}

#[test]
fn ends() {
    let handle = |task: quern::Task| match task.text()? {
        "retry" => Err(Error::retry("later").after(Duration::from_millis(1500))),
        "fatal" => Err(Error::fatal("never")),
        "status" => Err(Error::new("seven").with_status(7)),
        other => Ok(other.to_string()),
    };
    for (input, status, error) in [("Ada", Status::Complete, ""), ("retry", Status::Retry, "later"), ("fatal", Status::Fatal, "never"), ("status", Status::Failed, "seven")] {
        let result = Task::new(input).run(handle);
        assert_eq!((result.status, &result.error[..]), (status, error));
        assert_eq!(result.delay, Some(Duration::from_millis(1500)).filter(|_| input == "retry"));
        assert_eq!(result.output, if input == "Ada" { input.as_bytes() } else { b"" });
    }
    assert_eq!(Task::new([0xff]).run(handle).status, Status::Fatal);
}

#[test]
fn task() {
    let at = std::time::UNIX_EPOCH + Duration::from_millis(1 << 41);
    let given = Task::new("").id("x").queue("mail").tenant("shop").plugin("mailer").previous_error("bad").parent("p").key("k").traceparent("t").header("x-id", "7: 8");
    let result = given.attempt(2).max_attempts(3).reschedules(7).deadline(at).cancelled().run(|t| {
        assert_eq!((t.deadline(), t.max_attempts(), t.reschedules(), t.cancelled(), t.fuel()), (Some(at), Some(3), 7, true, None));
        assert_eq!(t.headers().into_iter().collect::<Vec<_>>(), [("traceparent".into(), "t".into()), ("x-id".into(), "7: 8".into())]);
        Ok(format!("{} {} {} {} {} {} {} {} {}", t.id(), t.queue(), t.tenant(), t.plugin(), t.previous_error(), t.parent(), t.key(), t.traceparent(), t.attempt()))
    });
    assert_eq!(result.text(), "x mail shop mailer bad p k t 2");
    let result = Task::new("").run(|t| Ok(format!("{} {} {:?} {:?} {}", t.id(), t.attempt(), t.max_attempts(), t.deadline(), t.cancelled())));
    assert_eq!(result.text(), "test 1 None None false");
}

// A short input takes one call of the host, and a longer one arrives whole.
#[test]
fn input() {
    for size in [0, 1, 1023, 1024, 1025, 5000] {
        let input: Vec<u8> = (0..size).map(|i| i as u8).collect();
        let mut task = Task::new(input.clone());
        if size < 1024 {
            task = task.fault("input_size", ErrorKind::Unavailable);
        }
        assert_eq!(task.run(|t| Ok(t.into_input())).output, input, "{size}");
    }
}

#[test]
fn services() {
    let task = Task::new("").config("size", "9").secret("key", "s").queues(&["mail*"]).checkpoint("one");
    let result = task.run(|_| -> Ended {
        assert_eq!((quern::config("size").as_deref(), quern::config("none")), (Some("9"), None));
        assert_eq!((quern::secret("key")?, kind(quern::secret("none"))), (b"s".to_vec(), Err(ErrorKind::Denied)));
        assert_eq!(quern::checkpoint()?.as_deref(), Some(&b"one"[..]));
        quern::save_checkpoint("two")?;
        assert_eq!(kind(quern::save_checkpoint(vec![0; (1 << 20) + 1])), Err(ErrorKind::TooBig));
        quern::progress(7.0, "done")?;
        quern::warning!("low on {}", "ink"; left = 3);
        assert_eq!(Enqueue::new("mail.now", "hi").key("k").send()?, "child-1");
        assert_eq!(Enqueue::new("mail", "hi").id("mine").send()?, "mine");
        assert_eq!(kind(Enqueue::new("other", "").send()), Err(ErrorKind::Denied));
        let (wall, before) = (quern::now(), quern::monotonic());
        quern::sleep(Duration::from_secs(3600))?;
        assert!(quern::monotonic() - before >= Duration::from_secs(3600) && quern::now() - Duration::from_secs(3600) >= wall);
        let mut bytes = [0; 64];
        quern::random(&mut bytes)?;
        assert_ne!(bytes, [0; 64]);
        Ok(())
    });
    assert_eq!(result.text(), "");
    assert_eq!((result.checkpoint, result.progress), (Some(b"two".to_vec()), vec![(1.0, "done".into())]));
    assert_eq!(result.log, [
        r#"warning: the test grants no secret "none": add .secret("none", "") to its Task"#,
        r#"warning: low on ink {"left":3}"#,
        r#"warning: the test grants no queue "other": add .queues(&["other"]) to its Task"#,
    ]);
    let told: Vec<_> = result.enqueued.iter().map(|e| (&e.id[..], &e.queue[..], &e.body[..], &e.options[..])).collect();
    assert_eq!(told, [("child-1", "mail.now", &b"hi"[..], r#"{"key":"k"}"#), ("mine", "mail", &b"hi"[..], r#"{"id":"mine"}"#)]);
    let flow = Task::new("").queues(&["*"]).topics(&["orders"]).dependency("a", Some(b"one")).dependency("b", None).run(|task| {
        let all: Vec<_> = task.dependencies()?.into_iter().map(|d| d.id + " " + &d.end).collect();
        assert_eq!((all.join(","), task.result_of("a")?), ("a complete,b failed".into(), b"one".to_vec()));
        assert!(task.result_of("b").unwrap_err().to_string().contains("task b failed and has no result"));
        assert_eq!((kind(task.result_of("b")), kind(task.result_of("c"))), (Err(ErrorKind::NotFound), Err(ErrorKind::Invalid)));
        Enqueue::new("mail", "").after(&["a", "\""]).when("any").send()?;
        assert_eq!(Publish::new("orders", "hi").attribute("type", "made").send()?, "publication-1");
        Ok(kind(Publish::new("bills", "").id("mine").send()).is_err().to_string())
    });
    assert_eq!(flow.text(), "true");
    assert_eq!(flow.enqueued[0].options, r#"{"after":["a","\""],"when":"any"}"#);
    assert_eq!((&flow.published[0].topic[..], &flow.published[0].body[..]), ("orders", &b"hi"[..]));
    assert_eq!(flow.published[0].options, r#"{"topic":"orders","attributes":{"type":"made"}}"#);
    let failed = Task::new("").queues(&["mail"]).run(|_| -> Ended {
        Enqueue::new("mail", "").send()?;
        Err(Error::new("no"))
    });
    assert!(failed.enqueued.is_empty());
}

#[test]
fn store() {
    let first = Task::new("").bucket("seen", &[("a", "1"), ("b", "x"), ("max", "9223372036854775807")]).run(|_| -> Ended {
        let b = quern::bucket("seen");
        assert_eq!((b.increment("a", 2), b.increment("new", -1)), (Ok(3), Ok(-1)));
        assert_eq!((kind(b.increment("b", 1)), kind(b.increment("max", 1))), (Err(ErrorKind::Conflict), Err(ErrorKind::Limit)));
        assert_eq!(b.swap("b", Some(b"y"), "z", None)?, Swap::Present(b"x".to_vec()));
        assert_eq!(b.swap("b", None, "z", None)?, Swap::Present(b"x".to_vec()));
        assert_eq!(b.swap("none", Some(b""), "z", None)?, Swap::Absent);
        assert_eq!((b.swap("b", Some(b"x"), "z", None)?, b.swap("c", None, "", None)?), (Swap::Done, Swap::Done));
        assert_eq!((b.get("b")?, b.get("none")?), (Some(b"z".to_vec()), None));
        assert_eq!((b.delete("max")?, b.delete("max")?), (true, false));
        assert_eq!((b.list("", "a", 2)?, b.list("n", "", 9)?), (vec!["b".to_string(), "c".into()], vec!["new".to_string()]));
        assert_eq!((kind(b.list("", "", 0)), kind(b.set("", "")), kind(b.set("a\n", ""))), (Err(ErrorKind::Invalid), Err(ErrorKind::Invalid), Err(ErrorKind::Invalid)));
        assert_eq!((kind(b.set("a", vec![0; (512 << 10) + 1])), kind(quern::bucket("other").get("a"))), (Err(ErrorKind::TooBig), Err(ErrorKind::Denied)));
        Ok(())
    });
    assert_eq!((first.text(), first.value("seen", "a"), first.value("seen", "max")), ("", Some("3"), None));
    let second = Task::new("").kv(first.kv).run(|_| Ok(quern::bucket("seen").increment("a", 1)?.to_string()));
    assert_eq!(second.text(), "4");
}

#[test]
fn requests() {
    let fetch = |_| -> Result<Vec<u8>, Error> {
        let answer = http::post("https://api.example.com/v1", "{}").header("X-Two", "1").header("x-two", "2").send().or_retry()?;
        Ok(format!("{} {:?} {}", answer.status, answer.header("retry-after"), String::from_utf8_lossy(&answer.body)).into())
    };
    let answer = |request: quern::test::Request| {
        assert_eq!((&request.headers[..], &request.body[..]), (&[("X-Two".to_string(), vec!["1".to_string(), "2".into()])][..], &b"{}"[..]));
        Answer::new(503, request.method + " " + &request.url).with_header("Retry-After", "7")
    };
    assert_eq!(Task::new("").http(answer).run(fetch).text(), r#"503 Some("7") POST https://api.example.com/v1"#);
    let denied = Task::new("").run(fetch);
    assert!(denied.error == "http POST https://api.example.com/v1: the test grants no HTTP: add .http(|request| quern::http::Answer::new(200, \"\")) to its Task (EDENIED)" && denied.log[0].contains("the test grants no HTTP: add .http("), "{denied}");
    let fails = Task::new("").http(answer).fault("http", ErrorKind::Unavailable).run(fetch);
    assert_eq!(fails.status, Status::Retry, "{fails}");
}

#[test]
#[should_panic(expected = "the task is not complete: Failed no ink\nlow")]
fn text_of_a_failed_task() {
    let failed = Task::new("").run(|_| -> Ended {
        quern::info!("low");
        Err(Error::new("no ink"))
    });
    failed.text();
}

// A panic of the handler reaches the test, and leaves no host behind.
#[test]
fn panics() {
    assert!(std::panic::catch_unwind(|| Task::new("").run(|_| -> Ended { panic!("no ink") })).is_err());
    assert_eq!(kind(quern::progress(1.0, "")), Err(ErrorKind::NoTask));
}

// The task's error names the call and what it asked for, whatever the function was that refused it.
#[test]
fn refused_calls() {
    type Call = fn() -> Ended;
    let calls: [(&str, &str, Call); 12] = [
        ("kv_set", " b/a", || Ok(quern::bucket("b").set("a", "1")?)),
        ("kv_get", " b/a", || Ok(quern::bucket("b").get("a").map(drop)?)),
        ("kv_delete", " b/a", || Ok(quern::bucket("b").delete("a").map(drop)?)),
        ("kv_increment", " b/a", || Ok(quern::bucket("b").increment("a", 1).map(drop)?)),
        ("kv_swap", " b/a", || Ok(quern::bucket("b").swap("a", None, "1", None).map(drop)?)),
        ("kv_list", " b/", || Ok(quern::bucket("b").list("", "", 1).map(drop)?)),
        ("enqueue", " mail", || Ok(Enqueue::new("mail", "").send().map(drop)?)),
        ("http", " GET https://example.com/", || Ok(http::get("https://example.com/?key=secret").send().map(drop)?)),
        ("secret_get", " key", || Ok(quern::secret("key").map(drop)?)),
        ("checkpoint_load", "", || Ok(quern::checkpoint().map(drop)?)),
        ("checkpoint_save", "", || Ok(quern::save_checkpoint("one")?)),
        ("progress", "", || Ok(quern::progress(1.0, "")?)),
    ];
    for (function, name, call) in calls {
        let failed = Task::new("").fault(function, ErrorKind::Quota).run(|_| call());
        assert_eq!(failed.error, format!("{function}{name}: EQUOTA: no room for more"));
    }
}

// A time that was given never turns into the host's 0, which is the default, or for ever.
#[test]
fn short_times() {
    for short in [Duration::ZERO, Duration::from_nanos(1), Duration::from_millis(1)] {
        let sent = Task::new("").queues(&["mail"]).run(|_| -> Ended {
            Ok(Enqueue::new("mail", "").delay(short).timeout(short).unique("", Some(short)).send().map(drop)?)
        });
        assert_eq!(sent.enqueued[0].options, r#"{"delay_ms":1,"timeout_ms":1,"unique":{"for_ms":1}}"#);
        let later = Task::new("").run(|_| -> Ended { Err(Error::retry("later").after(short)) });
        assert_eq!(later.delay, Some(Duration::from_millis(1)));
    }
}

#[test]
fn databases() {
    let result = Task::new("").run(|_| Ok(quern::database("shop").execute("SELECT $1", &[&1]).map(drop)?));
    let why = "a test has no database \"shop\": test the plugin by `quern plugin test --database shop=URL`";
    assert_eq!((result.status, result.error), (Status::Failed, format!("sql shop: {why} (EDENIED)")));
    assert_eq!(result.log, [format!("warning: {why}")]);
    let away = Task::new("").fault("sql_step", ErrorKind::Unavailable).run(|_| quern::database("shop").once("bill", || Ok("")));
    assert_eq!(away.error, "sql_step shop/bill: EAGAIN: the service is unavailable; see the task's log");
}

use crate::{json::Object, millis, slot_text, HostError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What is to be published: `Publish::new("orders", body).attribute("type", "order.made").send()?`. Each subscription of the topic that
/// matches gets a task. The manifest has to grant the topic.
#[derive(Clone, Debug)]
#[must_use = "nothing is published before send"]
pub struct Publish {
    topic: String,
    body: Vec<u8>,
    options: Object,
    attributes: Object,
}

impl Publish {
    pub fn new(topic: impl Into<String>, body: impl Into<Vec<u8>>) -> Publish {
        let topic = topic.into();
        let mut options = Object::new();
        options.text("topic", &topic);
        Publish { topic, body: body.into(), options, attributes: Object::new() }
    }

    /// The publication's ID, without which the host chooses one. If a publication with that ID is kept, nothing is published.
    pub fn id(mut self, id: &str) -> Publish {
        self.options.text("id", id);
        self
    }
    /// A CloudEvents attribute, such as type, or another one of a-z and 0-9: subscriptions filter by it.
    pub fn attribute(mut self, name: &str, value: &str) -> Publish {
        self.attributes.text(name, value);
        self
    }

    /// Publishes and returns the publication's ID, when this task completes; with `after: call` in the manifest at once.
    pub fn send(mut self) -> Result<String, HostError> {
        if !self.attributes.is_empty() {
            self.options.object("attributes", self.attributes);
        }
        let (topic, body, options) = (self.topic, self.body, self.options.end());
        // Safety: the ranges are those of slices.
        slot_text(call!(unsafe { enqueue("".as_ptr(), 0, body.as_ptr(), body.len(), options.as_ptr(), options.len()) })).map_err(|err| err.about("", &topic))
    }
}

/// A task to be enqueued: `Enqueue::new("mail", body).key("welcome").send()?`. The manifest has to grant the queue.
#[derive(Clone, Debug)]
#[must_use = "nothing is enqueued before send"]
pub struct Enqueue {
    queue: String,
    body: Vec<u8>,
    options: Object,
    labels: Object,
    headers: Object,
}

impl Enqueue {
    pub fn new(queue: impl Into<String>, body: impl Into<Vec<u8>>) -> Enqueue {
        Enqueue { queue: queue.into(), body: body.into(), options: Object::new(), labels: Object::new(), headers: Object::new() }
    }

    fn number(mut self, name: &str, value: i64) -> Enqueue {
        self.options.number(name, value);
        self
    }

    /// The new task's ID, without which the host chooses one. If there is a task with that ID, nothing is enqueued.
    pub fn id(mut self, id: &str) -> Enqueue {
        self.options.text("id", id);
        self
    }
    /// The caller's own name for it.
    pub fn key(mut self, key: &str) -> Enqueue {
        self.options.text("key", key);
        self
    }
    pub fn label(mut self, name: &str, value: &str) -> Enqueue {
        self.labels.text(name, value);
        self
    }
    /// A header, which goes with the task apart from its body; the name is in lower case. Without a traceparent the task inherits that
    /// of this one.
    pub fn header(mut self, name: &str, value: &str) -> Enqueue {
        self.headers.text(name, value);
        self
    }
    /// IDs of tasks that it waits for: siblings enqueued before, with IDs of their own, or others. With one of them and an empty body,
    /// its body is that one's result.
    pub fn after(mut self, ids: &[&str]) -> Enqueue {
        self.options.texts("after", ids);
        self
    }
    /// What must become of these: `"complete"`, all are, the default; `"ended"`, all have; `"any"`, one is complete; `"failed"`, one has.
    pub fn when(mut self, when: &str) -> Enqueue {
        self.options.text("when", when);
        self
    }
    /// 0 to 100, by default 50; higher priorities come first.
    pub fn priority(self, priority: u32) -> Enqueue {
        self.number("priority", priority.into())
    }
    /// How long the task waits.
    pub fn delay(self, delay: Duration) -> Enqueue {
        self.number("delay_ms", millis(delay))
    }
    /// When the task is due; a past time means now. Not together with a delay.
    pub fn at(self, at: SystemTime) -> Enqueue {
        self.number("at_ms", at.duration_since(UNIX_EPOCH).map_or(1, millis))
    }
    /// The most attempts; 0 means the manifest's.
    pub fn max_attempts(self, attempts: u32) -> Enqueue {
        self.number("max_attempts", attempts.into())
    }
    /// The time limit of each attempt.
    pub fn timeout(self, timeout: Duration) -> Enqueue {
        self.number("timeout_ms", millis(timeout))
    }
    /// Whom the task is for, such as a customer, in at most 256 bytes: the keys of a queue take turns of `weight` tasks, 1 to 1000.
    pub fn fair(mut self, key: &str, weight: u32) -> Enqueue {
        self.options.text("fair_key", key);
        self.number("fair_weight", weight.into())
    }
    /// Tasks of the queue with the same key, of at most 256 bytes, run one after another in their order, or `most` at once.
    pub fn concurrency(mut self, key: &str, most: u32) -> Enqueue {
        self.options.text("concurrency_key", key);
        self.number("max_concurrent", most.into())
    }
    /// No second task of the queue with the same key, or with the same body if the key is empty: for a time from one second on, or
    /// until the first one is finished.
    pub fn unique(mut self, key: &str, time: Option<Duration>) -> Enqueue {
        let mut unique = Object::new();
        if !key.is_empty() {
            unique.text("key", key);
        }
        if let Some(time) = time {
            unique.number("for_ms", millis(time));
        }
        self.options.object("unique", unique);
        self
    }

    /// Enqueues the task and returns its ID. It is created when this task completes; with `after: call` in the manifest at once.
    pub fn send(mut self) -> Result<String, HostError> {
        if !self.labels.is_empty() {
            self.options.object("labels", self.labels);
        }
        if !self.headers.is_empty() {
            self.options.object("headers", self.headers);
        }
        let (queue, body, options) = (self.queue, self.body, self.options.end());
        // Safety: the ranges are those of slices.
        slot_text(call!(unsafe { enqueue(queue.as_ptr(), queue.len(), body.as_ptr(), body.len(), options.as_ptr(), options.len()) })).map_err(|err| err.about("", &queue))
    }
}

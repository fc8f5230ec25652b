// New tasks and publications, in the queues and topics that the manifest grants.
import * as sys from "./sys";
import { bytesOf, slot, textOf, utf8 } from "./bytes";
import { check, Failure } from "./errors";
import { Fields } from "./json";

/** A task to be enqueued: `new Enqueue("mail").key("welcome").send("Ada")`. */
export class Enqueue {
  private options: Fields = new Fields();
  private labels: Fields | null = null;
  private headers: Fields | null = null;

  constructor(private queue: string) {}

  /** The new task's ID, without which the host chooses one. If there is a task with that ID, nothing is enqueued. */
  id(id: string): this {
    this.options.text("id", id);
    return this;
  }
  /** The caller's own name for it. */
  key(key: string): this {
    this.options.text("key", key);
    return this;
  }
  label(name: string, value: string): this {
    this.labels = (this.labels || new Fields()).text(name, value);
    return this;
  }
  /** A header, which goes with the task apart from its body; the name is in lower case. Without a traceparent the task inherits that of
   * this one. */
  header(name: string, value: string): this {
    this.headers = (this.headers || new Fields()).text(name, value);
    return this;
  }
  /** IDs of tasks that it waits for: siblings enqueued before, with IDs of their own, or others. With one of them and an empty body, its
   * body is that one's result. */
  after(ids: string[]): this {
    this.options.texts("after", ids);
    return this;
  }
  /** What must become of these: "complete", all are, the default; "ended", all have; "any", one is complete; "failed", one has. */
  when(when: string): this {
    this.options.text("when", when);
    return this;
  }
  /** 0 to 100, by default 50; higher priorities come first. */
  priority(priority: i64): this {
    this.options.integer("priority", priority);
    return this;
  }
  /** How long the task waits, in milliseconds. */
  delay(ms: i64): this {
    this.options.integer("delay_ms", ms);
    return this;
  }
  /** When the task is due, in Unix milliseconds. Not together with a delay. */
  at(ms: i64): this {
    this.options.integer("at_ms", ms);
    return this;
  }
  maxAttempts(attempts: i64): this {
    this.options.integer("max_attempts", attempts);
    return this;
  }
  /** The time limit of each attempt, in milliseconds. */
  timeout(ms: i64): this {
    this.options.integer("timeout_ms", ms);
    return this;
  }
  /** Whom the task is for, such as a customer, in at most 256 bytes: the keys of a queue take turns of weight tasks, 1 to 1000. */
  fair(key: string, weight: i64 = 1): this {
    this.options.text("fair_key", key);
    this.options.integer("fair_weight", weight);
    return this;
  }
  /** Tasks of the queue with the same key, of at most 256 bytes, run one after another in their order, or so many at once as most says. */
  concurrency(key: string, most: i64 = 1): this {
    this.options.text("concurrency_key", key);
    this.options.integer("max_concurrent", most);
    return this;
  }
  /** No second task of the queue with the same key, or without a key the same body: for some milliseconds, 1000 or more, or until the
   * first one is finished. */
  unique(key: string = "", ms: i64 = 0): this {
    const unique = new Fields();
    if (key.length > 0) unique.text("key", key);
    if (ms != 0) unique.integer("for_ms", ms);
    this.options.object("unique", unique);
    return this;
  }

  /**
   * Enqueues the task with a body, a string or bytes, and returns its ID. It is created when this task completes; with after: call in the
   * manifest at once.
   */
  send<T>(body: T, failure: Failure | null = null): string {
    const labels = this.labels;
    if (labels) this.options.object("labels", labels);
    const headers = this.headers;
    if (headers) this.options.object("headers", headers);
    const queue = utf8(this.queue), content = bytesOf(body), options = utf8(this.options.toString());
    const size = check("enqueue", sys.enqueue(
      changetype<usize>(queue), queue.byteLength, changetype<usize>(content), content.byteLength,
      changetype<usize>(options), options.byteLength,
    ), failure, this.queue);
    return textOf(slot(size));
  }
}

/** What is to be published to a topic: `new Publish("orders").attribute("type", "order.made").send(body)`. Each subscription that matches
 * gets a task. */
export class Publish {
  private options: Fields = new Fields();
  private attributes: Fields | null = null;

  constructor(private topic: string) {
    this.options.text("topic", topic);
  }

  /** The publication's ID, without which the host chooses one. If a publication with that ID is kept, nothing is published. */
  id(id: string): this {
    this.options.text("id", id);
    return this;
  }
  /** A CloudEvents attribute, such as type, or another one of a-z and 0-9: subscriptions filter by it. */
  attribute(name: string, value: string): this {
    this.attributes = (this.attributes || new Fields()).text(name, value);
    return this;
  }

  /** Publishes a body, a string or bytes, and returns the publication's ID, when this task completes; with after: call in the manifest at
   * once. */
  send<T>(body: T, failure: Failure | null = null): string {
    const attributes = this.attributes;
    if (attributes) this.options.object("attributes", attributes);
    const content = bytesOf(body), options = utf8(this.options.toString());
    const size = check("publish", sys.enqueue(
      changetype<usize>(options), 0, changetype<usize>(content), content.byteLength,
      changetype<usize>(options), options.byteLength,
    ), failure, this.topic);
    return textOf(slot(size));
  }
}

// The task, its result and its checkpoint.
import * as sys from "./sys";
import { bytesOf, isUTF8, slot, textOf, utf8 } from "./bytes";
import { check, Errno, Failure, fatal } from "./errors";

/** A task that another one waited for. */
export class Dependency {
  /** Its end is "complete", "failed", "gone" (deleted), "open" (it could not be waited for), or "waiting" while it goes on. */
  constructor(public id: string, public end: string) {}
}

/** The task that the handler is called for. */
export class Task {
  private buffer: ArrayBuffer | null = null;

  /** The input. */
  get input(): ArrayBuffer {
    let buffer = this.buffer;
    if (!buffer) {
      buffer = new ArrayBuffer(sys.input_size());
      sys.input_read(0, changetype<usize>(buffer), buffer.byteLength);
      this.buffer = buffer;
    }
    return buffer;
  }

  /** The input as UTF-8. Input of another kind fails the task for good. */
  get text(): string {
    if (!isUTF8(this.input)) fatal("the input is not UTF-8");
    return textOf(this.input);
  }

  /** The same in every attempt. */
  get id(): string {
    return text(0);
  }
  get queue(): string {
    return text(1);
  }
  /** The owner of the queue. */
  get tenant(): string {
    return text(2);
  }
  /** The name of this plugin on the host. */
  get plugin(): string {
    return text(3);
  }
  /** The error of the attempt before; "" in the first one. */
  get previousError(): string {
    return text(4);
  }
  /** The ID of the task that enqueued this one, or "". */
  get parent(): string {
    return text(5);
  }
  /** The key with which the task was enqueued, or "". */
  get key(): string {
    return text(6);
  }
  /** The task's trace as the W3C's header, or "". */
  get traceparent(): string {
    return text(7);
  }
  /** The headers with which the task was enqueued, by names in lower case, traceparent among them. */
  get headers(): Map<string, string> {
    const headers = new Map<string, string>(), lines = text(8).split("\n");
    for (let i = 0; i < lines.length; i++) {
      const colon = lines[i].indexOf(": ");
      if (colon > 0) headers.set(lines[i].substring(0, colon), lines[i].substring(colon + 2));
    }
    return headers;
  }
  /** The tasks that this one waited for before it ran, in the order in which they were named. */
  dependencies(failure: Failure | null = null): Dependency[] {
    const all: Dependency[] = [], size = sys.task_text(9);
    if (size == Errno.ESTATE || check("dependencies", size, failure) < 0) return all; // in the warm call there are none
    const lines = textOf(slot(size)).split("\n");
    for (let i = 0; i < lines.length; i++) {
      const space = lines[i].indexOf(" ");
      if (space > 0) all.push(new Dependency(lines[i].substring(0, space), lines[i].substring(space + 1)));
    }
    return all;
  }
  /** The result of one of these. ENOTFOUND if it has none, because it is not complete or is deleted, EINVAL if this task did not wait for
   * it, ETOOBIG above 16 MiB. */
  resultOf(id: string, failure: Failure | null = null): ArrayBuffer {
    const name = utf8(id);
    return slot(check("dependency_result", sys.dependency_result(changetype<usize>(name), name.byteLength), failure, id));
  }
  /** Counts from 1. */
  get attempt(): i64 {
    return number(0);
  }
  /** 0 if attempts are unlimited. */
  get maxAttempts(): i64 {
    return number(1);
  }
  /** How often the task has put itself off, which counts no attempt. */
  get reschedules(): i64 {
    return number(4);
  }
  /** When the host ends the task, in Unix milliseconds; 0 if never. */
  get deadline(): i64 {
    return number(2);
  }
  /** The fuel left; i64.MAX_VALUE without a limit. */
  get fuel(): i64 {
    return number(3);
  }
  /** Whether the host is about to stop: call retry soon, and the task runs elsewhere. Each read asks the host. */
  get cancelled(): bool {
    return sys.cancelled() == 1;
  }
}

function text(field: i32): string {
  return textOf(slot(sys.task_text(field)));
}

function number(field: i32): i64 {
  const word = memory.data(8);
  sys.task_number(field, word);
  return load<i64>(word);
}

/**
 * Runs a handler on the task; quern_handle returns what this returns. What the handler returns is the task's result: a string as UTF-8, or
 * bytes. One that returns nothing takes run<void>.
 */
export function run<T>(handle: (task: Task) => T): i32 {
  if (isVoid<T>()) {
    handle(new Task());
  } else {
    write(handle(new Task()));
  }
  return 0;
}

/** Appends to the task's result. */
export function write<T>(piece: T, failure: Failure | null = null): void {
  const bytes = bytesOf(piece);
  check("output_write", sys.output_write(changetype<usize>(bytes), bytes.byteLength), failure);
}

/** What the task's next run starts from, even if this host dies. At most 1 MiB. */
export namespace checkpoint {
  /** Saves it, and returns when it is durable. Stop on ECANCELED. */
  export function save<T>(value: T, failure: Failure | null = null): void {
    const bytes = bytesOf(value);
    check("checkpoint_save", sys.checkpoint_save(changetype<usize>(bytes), bytes.byteLength), failure);
  }

  /** The last checkpoint, of this run or an earlier one; null if there is none. */
  export function load(failure: Failure | null = null): ArrayBuffer | null {
    return found("checkpoint_load", sys.checkpoint_load(), failure);
  }
}

/** The content of the slot; null if nothing has the name, or if the call failed. */
export function found(call: string, answer: i32, failure: Failure | null, name: string = "", place: string = ""): ArrayBuffer | null {
  if (answer == Errno.ENOTFOUND) {
    check(call, 0, failure); // which is no failure
    return null;
  }
  return check(call, answer, failure, name, place) < 0 ? null : slot(answer);
}

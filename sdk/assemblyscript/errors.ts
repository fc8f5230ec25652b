// How a task ends that does not complete, and what the host refuses. AssemblyScript has no exceptions to catch: these functions do not
// return.
import * as sys from "./sys";
import { slot, textOf, utf8 } from "./bytes";

/** The host's errors, and ESQL for one of a database. */
export enum Errno {
  ESQL = 1, // PostgreSQL refused a statement: the failure's field sql has the details
  OK = 0,
  EINVAL = -1, // an argument is invalid; the task's log has the details
  EFAULT = -2, // a range outside memory
  EDENIED = -3, // the manifest or the host does not allow it; the task's log names the line to add
  ENOTFOUND = -4,
  ETOOBIG = -5, // larger than a limit
  EQUOTA = -6, // no room for more
  ECONFLICT = -7, // the present value is not the expected one
  ECANCELED = -8, // another host has the task: further work is in vain
  EAGAIN = -9, // the service is unavailable
  ESTATE = -10, // there is no task, as at the start of the module
  ELIMIT = -11, // too many, or too deep; the task's log has the details
}

const names: StaticArray<string> = [
  "OK", "EINVAL", "EFAULT", "EDENIED", "ENOTFOUND", "ETOOBIG", "EQUOTA", "ECONFLICT", "ECANCELED", "EAGAIN", "ESTATE", "ELIMIT",
];

/** An error of PostgreSQL. What it does not tell is "". */
export class SQLError {
  /** The SQLSTATE, such as "23505". */
  state: string = "";
  message: string = "";
  detail: string = "";
  hint: string = "";
  /** The place in the statement, in characters from 1; 0 if there is none. */
  position: i32 = 0;
  schema: string = "";
  table: string = "";
  column: string = "";
  dataType: string = "";
  constraint: string = "";

  toString(): string {
    return this.message + (this.detail.length > 0 ? ": " + this.detail : "") + " (SQLSTATE " + this.state + ")";
  }
}

/**
 * What a call that was given one has failed with. A call without one ends the task if it fails.
 *
 *     const failure = new Failure();
 *     bucket.set("a", value, 0, failure);
 *     if (failure.code == Errno.EQUOTA) bucket.delete("b");
 */
export class Failure {
  code: Errno = Errno.OK;
  /** Why the host refused the call, such as the line to add to the manifest; "" if it does not tell. */
  reason: string = "";
  /** The error of PostgreSQL; null if it is no ESQL. */
  sql: SQLError | null = null;

  get failed(): bool {
    return this.code != Errno.OK;
  }

  /** The name of the error, "OK" without one. */
  get name(): string {
    return nameOf(this.code);
  }
}

function nameOf(code: i32): string {
  if (code == Errno.ESQL) return "ESQL";
  return -code < names.length ? names[-code] : code.toString();
}

const REFUSAL: i32 = 10; // the field of task_text with why the host last refused a call

/** Why the host refused the call that has just failed with this code, or a dependency has no result; "" if it does not tell, as an
 * older host. */
function refusal(call: string, code: i32): string {
  const told = code == Errno.EINVAL || code == Errno.EDENIED || code == Errno.EQUOTA || code == Errno.EAGAIN ||
    code == Errno.ELIMIT;
  if (!told && !(code == Errno.ENOTFOUND && call == "dependency_result")) return "";
  const size = sys.task_text(REFUSAL);
  return size > 0 ? textOf(slot(size)) : "";
}

/** Ends the task with an exit status, and with a text as its error unless it is empty. */
export function exit(status: i32, message: string = ""): void {
  if (message.length > 0) setError(message);
  sys.proc_exit(status);
}

/**
 * Fails the attempt: the task's retry policy decides about another one. It comes after a delay in milliseconds, a year at most; if delay
 * is 0, the policy sets it.
 */
export function fail(message: string, delay: i64 = 0): void {
  if (delay > 0) sys.retry_after(delay);
  exit(1, message);
}

/** Fails the task for good: another attempt would fail as well. */
export function fatal(message: string): void {
  exit(65, message);
}

/**
 * Has the task tried again later, because something that it needs is unavailable: after a delay in milliseconds, a year at most, or
 * without one when its retry policy says. This does not count as an attempt. With key, all other waiting tasks of the queue with the
 * key of this one wait for the delay, too.
 */
export function retry(message: string, delay: i64 = 0, key: bool = false): void {
  if (delay > 0) sys.retry_after(key ? -delay : delay);
  exit(75, message);
}

/** Sets the error of a task that fails, and returns whether there is a task. */
export function setError(message: string): bool {
  const text = utf8(message);
  return sys.error_set(changetype<usize>(text), text.byteLength) >= 0;
}

/**
 * Passes an answer on, and its error to the one who asked for it; else an error ends the task. Its text has what was asked for: a name,
 * and before it that of the place where it is.
 */
export function check(call: string, answer: i32, failure: Failure | null, name: string = "", place: string = ""): i32 {
  if (failure) {
    failure.code = min(answer, 0);
    failure.reason = refusal(call, answer);
    failure.sql = null;
  } else if (answer < 0) {
    const reason = refusal(call, answer);
    if (name.length > 0) call += " ";
    if (place.length > 0) call += place + "/";
    call += name + ": ";
    fail(reason.length > 0 ? call + reason + " (" + nameOf(answer) + ")" : call + nameOf(answer));
  }
  return answer;
}

/**
 * The functions of Quern for handlers in AssemblyScript:
 *
 *     import { fatal, run, Task } from "@quern/assemblyscript";
 *
 *     export function quern_handle(): i32 {
 *       return run(greet);
 *     }
 *
 *     function greet(task: Task): string {
 *       const name = task.text.trim();
 *       if (name.length == 0) fatal("the input is no name");
 *       return "Hello, " + name + "!";
 *     }
 *
 * Where the host refuses a call, the task fails, unless the call is given a {@link Failure}.
 */
import "./builtins"; // so that asconfig.json finds them
import * as sys from "./sys";
import { slot, textOf, utf8 } from "./bytes";
import { check, Failure } from "./errors";
import { found } from "./task";

export { sys };
export { textOf, utf8 } from "./bytes";
export { Enqueue, Publish } from "./enqueue";
export { Errno, Failure, SQLError, exit, fail, fatal, retry } from "./errors";
export { Answer, Request } from "./http";
export { Fields } from "./json";
export { Bucket, Swap } from "./kv";
export { Level, debug, error, info, log, progress, trace, warning } from "./log";
export { Column, Database, Params, Rows } from "./sql";
export { Dependency, Task, checkpoint, run, write } from "./task";

/** A value of the manifest's section config, also at the start of the module; null if there is none. */
export function config(name: string): string | null {
  const text = utf8(name);
  const value = found("config_get", sys.config_get(changetype<usize>(text), text.byteLength), null, name);
  return value ? textOf(value) : null;
}

/** A secret that the manifest grants. Read it within the task. ENOTFOUND if the host has none of that name. */
export function secret(name: string, failure: Failure | null = null): ArrayBuffer {
  const text = utf8(name);
  return slot(check("secret_get", sys.secret_get(changetype<usize>(text), text.byteLength), failure, name));
}

/** The time in Unix nanoseconds. */
export function now(): i64 {
  return clock(0);
}

/** The nanoseconds of a clock that never goes back, from any beginning. */
export function monotonic(): i64 {
  return clock(1);
}

function clock(id: i32): i64 {
  const word = memory.data(8);
  sys.clock(id, word);
  return load<i64>(word);
}

/** Waits for some milliseconds; other tasks run meanwhile. */
export function sleep(ms: i64, failure: Failure | null = null): void {
  check("sleep", sys.sleep(ms), failure);
}

/** Random bytes, at most 65,536. */
export function random(size: i32, failure: Failure | null = null): ArrayBuffer {
  const bytes = new ArrayBuffer(size);
  check("random", sys.random(changetype<usize>(bytes), size), failure);
  return bytes;
}

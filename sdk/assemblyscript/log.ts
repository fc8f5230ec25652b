// The task's log and its progress.
import * as sys from "./sys";
import { utf8 } from "./bytes";
import { check, Failure } from "./errors";
import { Fields } from "./json";

export enum Level {
  TRACE,
  DEBUG,
  INFO,
  WARNING,
  ERROR,
}

/** Writes a line of the task's log: a text, which the host cuts to 64 KiB, and fields of at most 3 KiB as JSON. */
export function log(level: i32, text: string, fields: Fields | null = null, failure: Failure | null = null): void {
  const line = utf8(text);
  const json = utf8(fields ? fields.toString() : "");
  check("log", sys.log(level, changetype<usize>(line), line.byteLength, changetype<usize>(json), json.byteLength), failure);
}

export function trace(text: string, fields: Fields | null = null): void {
  log(Level.TRACE, text, fields);
}
export function debug(text: string, fields: Fields | null = null): void {
  log(Level.DEBUG, text, fields);
}
export function info(text: string, fields: Fields | null = null): void {
  log(Level.INFO, text, fields);
}
export function warning(text: string, fields: Fields | null = null): void {
  log(Level.WARNING, text, fields);
}
export function error(text: string, fields: Fields | null = null): void {
  log(Level.ERROR, text, fields);
}

/** Reports how much of the task is done, from 0 to 1, and what it is doing, which the host cuts to 1 KiB. The latest report is shown. */
export function progress(fraction: f64, message: string = "", failure: Failure | null = null): void {
  const text = utf8(message);
  check("progress", sys.progress(fraction, changetype<usize>(text), text.byteLength), failure);
}

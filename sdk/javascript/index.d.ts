/**
 * The functions of Quern for handlers in JavaScript and TypeScript. A handler is the default export of its module:
 *
 *     import type { Task } from "@quern/sdk";
 *
 *     export default async function (task: Task) {
 *       const { name } = task.json<{ name: string }>();
 *       return { greeting: `hello, ${name}` };
 *     }
 *
 * What it returns is the task's result: a string as UTF-8, bytes as they are, nothing for undefined, JSON of anything else.
 * An error that it throws fails the task; see {@link Retry} and {@link Fatal}.
 *
 * All functions return when the host has answered. Where a function fails, it throws a {@link QuernError}.
 */

/** Bytes that a function accepts. A string counts as its UTF-8. */
export type Bytes = string | ArrayBuffer | ArrayBufferView;

/** A task. Its values do not change. Input is what json() returns. */
export interface Task<Input = any> {
  /** The name by which the enqueuing client knows the task. It is the same in every attempt. */
  readonly id: string;
  readonly queue: string;
  /** The owner of the queue. */
  readonly tenant: string;
  /** The name of this plugin on the host. */
  readonly plugin: string;
  /** Counts from 1. */
  readonly attempt: number;
  /** Bounds the attempts; 0 without a bound. */
  readonly maxAttempts: number;
  /** How often the task has put itself off by {@link Retry}, which counts no attempt. */
  readonly reschedules: number;
  /** When the host ends the task, without notice. */
  readonly deadline: Date | undefined;
  /** The key with which the task was enqueued, or "". */
  readonly key: string;
  /** The ID of the task that enqueued this one, or "". */
  readonly parent: string;
  /** The error of the attempt before; "" in the first one. */
  readonly previousError: string;
  /** The task's trace, in the form of the W3C's header, or "". */
  readonly traceparent: string;
  /** The headers with which the task was enqueued, by names in lower case, traceparent among them. */
  readonly headers: Record<string, string>;
  /** The tasks that this one waited for before it ran, in the order in which they were named. */
  dependencies(): Dependency[];
  /**
   * The result of one of these. Throws ENOTFOUND if it has none, because it is not complete or is deleted, EINVAL if this task did not
   * wait for it, ETOOBIG above 16 MiB.
   */
  resultOf(id: string): Uint8Array<ArrayBuffer>;
  /** Whether the host is about to stop: throw a {@link Retry} soon, and the task runs elsewhere. Each read asks the host. */
  readonly cancelled: boolean;
  /** The input. */
  bytes(): Uint8Array<ArrayBuffer>;
  /** The input as UTF-8. */
  text(): string;
  /** The input as JSON. If it is not JSON, the task fails for good unless the handler catches that. */
  json<T = Input>(): T;
}

/** A task that another one waited for. */
export interface Dependency {
  readonly id: string;
  /** gone: it was deleted; open: it could not be waited for; waiting: it goes on. */
  readonly end: "complete" | "failed" | "gone" | "open" | "waiting";
  /** Its result. Throws as {@link Task.resultOf} does. */
  bytes(): Uint8Array<ArrayBuffer>;
  text(): string;
  json<T = any>(): T;
}

/** What a handler may return. */
export type Result = string | ArrayBuffer | ArrayBufferView | object | number | boolean | null | undefined | void;

/** The type of a module's default export: of what its tasks' input is as JSON, and of what it returns. */
export type Handler<Input = any, Output extends Result = Result> = (task: Task<Input>) => Output | Promise<Output>;

/**
 * Throw it to fail the attempt with this message alone. It counts, as any other error does: the retry policy decides about another
 * attempt.
 */
export class Failure extends Error {
  /** delay is in milliseconds before that attempt, between the min and max of the retry policy; without it the policy decides. */
  constructor(message?: string, options?: ErrorOptions & { delay?: number });
  readonly delay: number | undefined;
}

/**
 * Throw it to have the task run again later, because something that it needs is unavailable. This does not count as an attempt: see
 * {@link Failure} for what does.
 */
export class Retry extends Failure {
  /** With key, all other waiting tasks of the queue with the key of this one wait for the delay, too. */
  constructor(message?: string, options?: ErrorOptions & { delay?: number; key?: boolean });
  readonly key: boolean;
}

/** Throw it to fail the task for good, because another attempt would fail as well. Its message is the task's error. */
export class Fatal extends Failure {
  constructor(message?: string, options?: ErrorOptions);
}

/** The names of the host's errors. */
export type ErrorCode =
  | "EINVAL" // an argument is invalid; the task's log has the details
  | "EFAULT"
  | "EDENIED" // the manifest or the host does not allow it; the task's log names the line to add
  | "ENOTFOUND"
  | "ETOOBIG" // larger than its limit
  | "EQUOTA" // no room for more
  | "ECONFLICT" // the present value is not the expected one
  | "ECANCELED" // another host has the task: further work is in vain
  | "EAGAIN" // the service behind it is unavailable
  | "ESTATE" // there is no task, as at the start of the module
  | "ELIMIT"; // too many, or too deep

/** An error of the host. */
export class QuernError extends Error {
  private constructor();
  readonly code: ErrorCode;
  /** The function of the host that failed. */
  readonly call: string;
  /** The present value, if {@link Bucket.swap} failed with ECONFLICT and there is one. */
  readonly present?: Uint8Array<ArrayBuffer>;
}

export type Level = "trace" | "debug" | "info" | "warn" | "error";
type Fields = Record<string, unknown>;

/** Writes a line of the task's log: a text, which the host cuts to 64 KiB, and fields of at most 3 KiB as JSON. More throw ETOOBIG. */
export const log: {
  (level: Level | number, text: string, fields?: Fields): void;
} & Record<Level, (text: string, fields?: Fields) => void>;

/** Reports how much of the task is done, from 0 to 1, and what it is doing; the host cuts the message to 1 KiB. A fraction outside
 * becomes the nearer end, with a warning in the task's log. */
export function progress(fraction: number, message?: string): void;

/** What the task's next run starts from, even if this host dies. At most 1 MiB. */
export const checkpoint: {
  /** Saves a string or bytes, or else JSON. Returns when the checkpoint is durable. Stop on ECANCELED. */
  save(value: unknown): void;
  /** The last checkpoint, of this run or an earlier one; undefined if there is none. */
  load(): Uint8Array<ArrayBuffer> | undefined;
  text(): string | undefined;
  json<T = any>(): T | undefined;
};

/** A bucket of the tenant's key-value store, which the manifest has to grant. Keys have 1 to 256 bytes, values at most 512 KiB. */
export interface Bucket {
  readonly name: string;
  /** The value; undefined if there is none. */
  get(key: string): Uint8Array<ArrayBuffer> | undefined;
  text(key: string): string | undefined;
  json<T = any>(key: string): T | undefined;
  /** Sets a value, a string or bytes or else JSON, for ttl milliseconds if that is above 0. Throws EQUOTA if the bucket has no room. */
  set(key: string, value: unknown, options?: { ttl?: number }): void;
  /** Returns whether there was a value. */
  delete(key: string): boolean;
  /**
   * Adds to a decimal number, 0 if there is none, and returns the sum. A sum that is no safe integer throws a RangeError, after it is
   * stored: add a BigInt, and the sum is one.
   */
  increment(key: string, delta?: number): number;
  increment(key: string, delta: bigint): bigint;
  /** Sets the value if the present one equals old, or if there is none and old is undefined. Else it throws ECONFLICT. */
  swap(key: string, old: unknown, value: unknown, options?: { ttl?: number }): void;
  /** Keys that begin with prefix and sort after the key after, in byte order: at most limit, 1 to 1000. */
  list(options?: { prefix?: string; after?: string; limit?: number }): string[];
}

export function kv(bucket: string): Bucket;

/**
 * What a parameter of a statement may be: null for NULL, a string (of any type, in PostgreSQL's text format), bytes for bytea, an array
 * for an array, any other object for json. An array for json is JSON.stringify(value).
 */
export type Parameter = string | number | bigint | boolean | null | object;

export interface Column {
  readonly name: string;
  /** Of its type, as in PostgreSQL's table pg_type. */
  readonly oid: number;
}

/** The rows of an answer, all in memory: objects by the names of the columns. */
export interface Rows<Row = Record<string, any>> extends Array<Row> {
  /** How many rows were inserted, changed, deleted, selected or fetched. */
  readonly affected: number;
  readonly columns: Column[];
}

/**
 * A PostgreSQL database, which the manifest has to grant in capabilities.sql. The first statement begins a transaction. With `commit:
 * complete`, the default, it is committed together with the completion of the task, and undone if the handler throws. With `commit: call`,
 * commit and once commit it.
 *
 * Statements have parameters $1, $2 and so on. In rows, int2, int4, float4 and float8 are numbers, int8 is a number or from 2 ** 53 on a
 * bigint, bool a boolean, timestamptz a Date without microseconds, bytea a Uint8Array, json and jsonb what JSON.parse makes of them, and
 * arrays of these are arrays. NULL is null. All others are strings in PostgreSQL's text format: numeric, uuid, date, time, timestamp,
 * interval and so on, and what a Date does not express, such as infinity.
 */
export interface Database {
  readonly name: string;
  /**
   * Runs a statement. An error of PostgreSQL is an {@link SQLError}. ELIMIT: the answer or the time is over what the manifest allows.
   * EAGAIN: the database does not serve. Let it end the handler: the task runs again later, without counting an attempt.
   */
  query<Row = Record<string, any>>(statement: string, parameters?: readonly Parameter[]): Rows<Row>;
  /** Runs a statement, and returns the first of its rows; undefined if there is none. */
  queryRow<Row = Record<string, any>>(statement: string, parameters?: readonly Parameter[]): Row | undefined;
  /** Runs a statement, and returns how many rows it affected. */
  execute(statement: string, parameters?: readonly Parameter[]): number;
  /** Commits the transaction. The manifest must say `commit: call`. EAGAIN: it is not known whether it is committed. */
  commit(): void;
  /** Undoes the transaction. The next statement begins a new one. */
  rollback(): void;
  /**
   * Does a step of the task that must not be done twice, however often the task runs. If a run of the task has done the step, this returns
   * its value. Otherwise it calls run, and commits its statements together with what it returns, as JSON. If run throws, its statements are
   * undone. The manifest must say `commit: call`.
   */
  once<Value>(step: string, run: () => Value | Promise<Value>): Promise<Value>;
}

export function database(name: string): Database;

/**
 * An error of PostgreSQL; its message has the detail and the SQLSTATE as well. After it, the database refuses all statements of the
 * transaction, until ROLLBACK TO a savepoint, or {@link Database.rollback}. What an error does not have is "".
 */
export class SQLError extends Error {
  private constructor();
  /** Such as 23505: see PostgreSQL's table of error codes. */
  readonly sqlstate: string;
  readonly detail: string;
  readonly hint: string;
  /** The place in the statement, in characters from 1; 0 if unknown. */
  readonly position: number;
  readonly schema: string;
  readonly table: string;
  readonly column: string;
  readonly dataType: string;
  readonly constraint: string;
}

export interface HTTPRequest {
  /** Default GET. */
  method?: string;
  url: string;
  headers?: Record<string, string | string[]>;
  /** At most 16 MiB. */
  body?: Bytes;
  /** In milliseconds; the host's limit applies as well. */
  timeout?: number;
}

export interface HTTPAnswer {
  readonly status: number;
  /** Names are in lower case. */
  readonly headers: Record<string, string[]>;
  readonly body: Uint8Array<ArrayBuffer>;
  text(): string;
  json<T = any>(): T;
}

/** Sends a request, which the manifest has to grant, and returns the answer, of any status. It does not follow redirects. See also fetch. */
export function http(request: string | HTTPRequest): HTTPAnswer;

export interface EnqueueOptions {
  /** The new task's ID. If there is a task with that ID, nothing is enqueued. */
  id?: string;
  /** The caller's own name for it. */
  key?: string;
  labels?: Record<string, string>;
  /** They go with the task apart from its body; names are in lower case. Without a traceparent the task inherits that of this one. */
  headers?: Record<string, string>;
  /** IDs of tasks that it waits for: siblings enqueued before, with IDs of their own, or others. With one of them and no body, its body is that one's result. */
  after?: string[];
  /** What must become of these: all are complete (the default), all have ended, one is complete, or one has failed. */
  when?: "complete" | "ended" | "any" | "failed";
  /** 0 to 100; higher priorities come first. */
  priority?: number;
  /** How long the task waits, in milliseconds. */
  delay?: number;
  /** When the task is due. Not together with delay. */
  at?: Date | number;
  maxAttempts?: number;
  /** Of each attempt, in milliseconds. */
  timeout?: number;
  /** Whom the task is for, such as a customer, in at most 256 bytes: the keys of a queue take turns of fairWeight tasks, 1 (the default) to 1000. */
  fairKey?: string;
  fairWeight?: number;
  /** Tasks of the queue with the same key, of at most 256 bytes, run one after another in their order, or maxConcurrent at once. */
  concurrencyKey?: string;
  maxConcurrent?: number;
  /**
   * No second task of the queue with the same key, or without one the same body: for duration milliseconds, 1,000 at least, or until the
   * first is finished.
   */
  unique?: boolean | { key?: string; duration?: number };
}

/**
 * Enqueues a task and returns its ID. It is created when this task completes; with after: call in the manifest at once. The body is a
 * string or bytes, or else becomes JSON.
 */
export function enqueue(queue: string, body?: unknown, options?: EnqueueOptions): string;

export interface PublishOptions {
  /** The publication's ID. If a publication with that ID is kept, nothing is published. */
  id?: string;
  /** CloudEvents attributes, such as type, and others of a-z and 0-9: subscriptions filter by them. */
  attributes?: Record<string, string>;
}

/**
 * Publishes to a topic and returns the publication's ID: each subscription that matches gets a task with the body, when this task
 * completes; with after: call in the manifest at once. The body is a string or bytes, or else becomes JSON.
 */
export function publish(topic: string, body?: unknown, options?: PublishOptions): string;

/** Secrets of the tenant, which the manifest has to grant. Read them within the task. */
export const secrets: {
  get(name: string): string;
  bytes(name: string): Uint8Array<ArrayBuffer>;
};

/** Values of the manifest's section config, also at the start of the module. */
export const config: {
  get(name: string): string | undefined;
};

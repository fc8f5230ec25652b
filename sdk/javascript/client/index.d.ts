/** Bytes as they are, a string as UTF-8, undefined or null as nothing, anything else as JSON. */
export type Parameters = unknown;

/** What a producer may say about a task. Durations are milliseconds. Times are Dates, or milliseconds since the epoch. */
export interface Options {
  /** The task's ID: if it exists, nothing is enqueued. Default: a new UUID. */
  id?: string;
  /** The producer's own name for what the task is about. */
  key?: string;
  labels?: Record<string, string>;
  /** For the handler, by names in lower case. */
  headers?: Record<string, string>;
  /** 0 to 100, higher ones first. Default: 50. */
  priority?: number;
  delay?: number;
  at?: Date | number;
  /** When the task expires, or is stopped if it runs. */
  deadline?: Date | number;
  /** Of each attempt. */
  timeout?: number;
  /** -1: no bound. Default: the manifest's. */
  maxAttempts?: number;
  backoff?: "exponential" | "linear";
  backoffBase?: number;
  backoffMin?: number;
  backoffMax?: number;
  jitter?: boolean;
  maxAge?: number;
  maxReschedules?: number;
  /** Enqueue nothing if the queue has a task with the same parameters (true), or with the same key: for `duration` milliseconds (1,000 at least), or until
   * that task is finished. */
  unique?: boolean | string | { key?: string; duration?: number };
  /** Tasks to wait for: their handles or IDs. */
  after?: string | HasID | (string | HasID)[];
  /** Default: complete. */
  when?: "complete" | "ended" | "any" | "failed";
  open?: boolean;
  deadQueue?: string;
  /** Whom it is for, such as a customer: the keys of a queue take turns. */
  fairKey?: string;
  /** How many tasks a turn of the key has; by default 1. */
  fairWeight?: number;
  /** Tasks of the queue with the same key run one after another. */
  concurrencyKey?: string;
  /** How many of them may run at once; by default 1. */
  maxConcurrent?: number;
  parent?: string;
  traceparent?: string;
}

/** A handle, or a task. */
export interface HasID {
  readonly id: string;
}

export interface Item<Input = Parameters> extends Options {
  parameters?: Input;
}

export interface ClientOptions {
  token?: string;
  /** Default: blueque. */
  tenant?: string;
  /** Bounds each answer, in milliseconds. Default: 30,000. */
  timeout?: number;
  /** How often a request is repeated that finds no server, or a busy one. It enqueues nothing twice. Default: 5. */
  retries?: number;
  /** Instead of the global fetch, for instance with a dispatcher of undici's that has a private CA. */
  fetch?: typeof globalThis.fetch;
}

export interface WaitOptions {
  /** In milliseconds. Default: without end. */
  timeout?: number;
  signal?: AbortSignal;
}

export interface PublishOptions {
  /** The publication's ID: if it is kept, nothing is published. Default: a new UUID. */
  id?: string;
  /** Attributes of a CloudEvent, for filters and handlers. */
  attributes?: Record<string, string>;
  /** The task that it comes from. */
  parent?: string;
  traceparent?: string;
  tracestate?: string;
}

export interface Publication {
  id: string;
  topic: string;
  /** It was published before, and nothing is published now. */
  existed: boolean;
  /** How many subscriptions matched: each gets a task. */
  subscribers: number;
  /** No subscription matched: there is no task. */
  dropped: boolean;
}

/** The server refused a request. `type` names the kind of problem, such as "queue-full"; `status` is the HTTP status. */
export class APIError extends Error {
  readonly status: number;
  readonly type: string;
}

/** There is no task with this ID: it never existed, or was deleted. */
export class NoTaskError extends APIError {}

/** A task has failed. `task` has all that the server says about it. */
export class TaskFailed extends Error {
  readonly task: Task;
}

/** A task has not ended in time; the message says what it waits for. `cause` is the error of the connection if the server was not reached. */
export class WaitTimeout extends Error {}

/** Why a run failed. */
export interface Failure {
  reason: string;
  message: string;
  exit_code?: number;
  limit?: string;
  stderr?: string;
  backtrace?: string[];
}

/** A task as the server described it, by the names of the API: times are seconds since the epoch. Output is what its result is as JSON. */
export class Task<Output = any> {
  readonly id: string;
  readonly queue: string;
  readonly status: "scheduled" | "pending" | "reserved" | "started" | "complete" | "failed";
  /** Why it failed. */
  readonly reason?: string;
  readonly error?: Failure;
  /** Of the last run that did not finish the task. */
  readonly last_error?: Failure;
  /** How many runs ended by themselves. */
  readonly attempts: number;
  /** How many runs asked to be called again later; these are not attempts. */
  readonly reschedules: number;
  readonly progress?: number;
  readonly message?: string;
  readonly handled?: string;
  readonly cancel_asked?: boolean;
  /** The record of a run, which `quern task replay` replays; a size of 0: it was too large to be kept. */
  readonly record?: { run: number; size: number; encrypted?: boolean };
  /** The tasks that it waits for, or waited for. */
  readonly after?: { when: string; open?: boolean; blocked?: boolean; of: number; ended: number; failed: number };
  readonly parameters?: string;
  readonly parameters_base64?: string;
  readonly parameters_size?: number;
  readonly result_size?: number;
  readonly max_attempts?: number;
  readonly crashes: number;
  readonly rejects: number;
  readonly run: number;
  readonly node?: string;
  readonly pid?: number;
  readonly created?: number;
  readonly updated?: number;
  readonly eta?: number;
  readonly reserved_at?: number;
  readonly started_at?: number;
  readonly finished_at?: number;
  readonly retried_at?: number;
  readonly expires?: number;
  readonly deadline?: number;
  readonly timeout_seconds?: number;
  readonly retry?: {
    backoff?: "exponential" | "linear"; base_seconds?: number; min_seconds?: number; max_seconds?: number; jitter?: boolean;
    max_age_seconds?: number; max_reschedules?: number;
  };
  readonly plugin?: string;
  readonly digest?: string;
  readonly version?: string;
  readonly priority: number;
  readonly key?: string;
  readonly labels?: Record<string, string>;
  readonly headers?: Record<string, string>;
  readonly parent?: string;
  readonly depth?: number;
  readonly traceparent?: string;
  readonly live_id?: string;
  readonly dead_id?: string;
  readonly dead_queue?: string;
  readonly dead_error?: string;
  readonly checkpoint_size?: number;
  readonly withheld?: boolean;
  readonly history?: Attempt[];
  readonly finished: boolean;
  /** The result of a complete task. */
  readonly bytes: Uint8Array;
  readonly text: string;
  json<T = Output>(): T;
}

/** A run that has ended. */
export interface Attempt {
  run: number;
  started?: number;
  ended?: number;
  node?: string;
  plugin?: string;
  digest?: string;
  version?: string;
  outcome: string;
  error?: Failure;
  run_seconds?: number;
  delay_seconds?: number;
}

/** An enqueued task. */
export class Handle<Output = any> {
  readonly id: string;
  readonly queue: string;
  /** It was there before; or, with an ID of your own, a repeated request had enqueued it. */
  readonly existed: boolean;
  /** What existed is something else: a task of another queue or with other parameters. */
  readonly taken: boolean;
  /** No host serves the queue, and none is known to have done so: its name may be misspelled. The client warns once for each queue. */
  readonly unserved: boolean;
  /** Waits for the end of the task: see Client.wait. */
  wait(options?: WaitOptions): Promise<Task<Output>>;
  /** The task as it is now. */
  task(): Promise<Task<Output>>;
  cancel(): Promise<boolean>;
}

/** A queue of a client, with the options of its tasks. Options of a call go before these. */
export class Queue<Input = Parameters, Output = any> {
  readonly name: string;
  add(parameters?: Input, options?: Options): Promise<Handle<Output>>;
  addBulk(items: Iterable<Item<Input>> | AsyncIterable<Item<Input>>): Promise<Handle<Output>[]>;
}

/** A client of the API of a host (--admin) or of `quern admin`, at a URL such as http://127.0.0.1:9465. */
export class Client {
  constructor(url: string, options?: ClientOptions);
  readonly tenant: string;
  /** A queue, with options for all tasks that are enqueued through it. */
  queue<Input = Parameters, Output = any>(name: string, options?: Omit<Options, "id">): Queue<Input, Output>;
  enqueue<Output = any>(queue: string, parameters?: Parameters, options?: Options): Promise<Handle<Output>>;
  /** Enqueues tasks in their order. An error can come after some of the tasks are enqueued: give them IDs to repeat the call. */
  enqueueMany<Output = any>(queue: string, items: Iterable<Item> | AsyncIterable<Item>): Promise<Handle<Output>[]>;
  /** The task as it is now, with its result if it is complete. A missing one is a NoTaskError. */
  task<Output = any>(id: string): Promise<Task<Output>>;
  /** Waits until the task is complete. It throws TaskFailed if the task has failed, and WaitTimeout if it has not ended in time. */
  wait<Output = any>(id: string, options?: WaitOptions): Promise<Task<Output>>;
  /** Cancels a task. True: it has ended. False: a host runs it and stops it now. */
  cancel(id: string): Promise<boolean>;
  /** Publishes to a topic: each of its subscriptions gets a task with the payload. */
  publish(topic: string, payload?: Parameters, options?: PublishOptions): Promise<Publication>;
}

/** A webhook does not come from the holder of the secret, or is a recording: answer 401. */
export class SignatureError extends Error {}

/** Checks the signature of a webhook that a host has delivered, and returns its ID, which is the same whenever it is delivered again. headers are
 * those of a request of Node, or of fetch. body is that of the request as it came, not its JSON. secret is the text of the secret's file on the host;
 * while it is changed, the old and the new one. tolerance bounds the difference of the clocks: 300,000 milliseconds. It throws SignatureError. */
export function verify(
  headers: Headers | Record<string, string | string[] | undefined>, body: string | ArrayBuffer | ArrayBufferView, secret: string | string[],
  options?: { tolerance?: number },
): string;

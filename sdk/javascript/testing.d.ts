/**
 * A host for tests of handlers in Node, with services in memory, and databases that are real. It needs no Quern:
 *
 *     import assert from "node:assert/strict";
 *     import { test } from "node:test";
 *     import { testHost } from "@quern/sdk/testing";
 *     import handler from "./handler.js";
 *
 *     test("greets", async () => {
 *       const host = testHost({ kv: { greeted: {} } });
 *       const result = await host.run(handler, { name: "Zoë" });
 *       assert.equal(result.status, "complete");
 *       assert.deepEqual(result.json(), { text: "hello, Zoë", times: 1 });
 *     });
 *
 * It works with node --test, vitest and others. The limits and grants of a manifest, and what a handler cannot have, are those of the
 * real host alone: quern plugin test.
 */

import type { EnqueueOptions, Handler, Level } from "./index.js";

/** What a test gives or gets as bytes: a string counts as its UTF-8, and what is neither becomes JSON. */
export type Value = string | ArrayBuffer | ArrayBufferView | object | number | boolean | null;

/** What a task has written: a string if it is UTF-8. */
export type Written = string | Uint8Array;

/** A request of the functions http and fetch. */
export interface TestRequest {
  method: string;
  url: string;
  /** Names are in lower case. */
  headers: Record<string, string>;
  body: Written;
}

export interface TestAnswer {
  /** Default 200. */
  status?: number;
  headers?: Record<string, string | string[]>;
  body?: Value;
}

/** What handlers may use. */
export interface Services {
  /** Code outside of the handler's function does not see it: the module is evaluated before. */
  config?: Record<string, string>;
  /** Those that are granted. */
  secrets?: Record<string, Value>;
  /** The buckets that are granted, with their values. */
  kv?: Record<string, Record<string, Value>>;
  /** Answers requests. It may return a promise if the handler uses fetch alone. */
  http?: (request: TestRequest) => TestAnswer | Promise<TestAnswer>;
  /** The URLs of the databases that are granted: real ones, by the package pg. */
  databases?: Record<string, string>;
  /** The queues to which tasks may enqueue, as patterns such as "mail.*"; all by default. */
  queues?: string[];
  /** The topics to which tasks may publish, as patterns; all by default. */
  topics?: string[];
  /** By the ID of the task. */
  checkpoints?: Record<string, Value>;
}

export interface TestTask {
  /** Default "test", as of queue and plugin. */
  id?: string;
  queue?: string;
  /** Default "default". */
  tenant?: string;
  plugin?: string;
  /** Default 1. */
  attempt?: number;
  maxAttempts?: number;
  reschedules?: number;
  deadline?: Date;
  key?: string;
  parent?: string;
  previousError?: string;
  traceparent?: string;
  headers?: Record<string, string>;
  /** The results of the tasks that it waited for, by ID: null for those that failed. */
  after?: Record<string, Value>;
  cancelled?: boolean;
}

export interface Enqueued {
  queue: string;
  body: Written;
  id: string;
  options: Omit<EnqueueOptions, "id">;
}

export interface Published {
  topic: string;
  body: Written;
  id: string;
  attributes: Record<string, string>;
}

/** What became of a task. */
export interface TestResult {
  status: "complete" | "failed" | "fatal" | "retry";
  /** What the handler returned; empty if the task failed. */
  output: Uint8Array;
  text(): string;
  json<T = any>(): T;
  /** Why it failed: name and message, of Failure, Retry and Fatal the message. It is also what a timer has thrown, and, after "unhandled rejection: ", why a promise without a handler was rejected. */
  error: string;
  /** What the handler threw. */
  thrown: unknown;
  /** The milliseconds that Retry or Failure asked for. */
  delay: number | undefined;
  /** Whether these are for all tasks with the task's key. */
  key: boolean;
  /** Lines of the log; console writes there as well. */
  log: { level: Level; text: string; fields: Record<string, any> }[];
  progress: { fraction: number; message: string }[];
  /** New tasks. There are none if the task failed. */
  enqueued: Enqueued[];
  published: Published[];
  checkpoint: Written | undefined;
}

/** A host that keeps its services from task to task. A test may change them. */
export interface TestHost extends Required<Omit<Services, "http" | "queues" | "topics">>, Pick<Services, "http" | "queues" | "topics"> {
  /** What completed tasks have enqueued. */
  enqueued: Enqueued[];
  published: Published[];
  /** Undoes what tasks have changed in databases. */
  close(): Promise<void>;
  /** Runs the handler on a task. Tasks that use databases run one after the other. */
  run(handler: Handler, input?: Value, task?: TestTask): Promise<TestResult>;
}

export function testHost(services?: Services): TestHost;

// The task as the handler sees it. It asks the host for each value.

import { native } from "#native";
import { notJSON, parseJSON } from "./bytes.js";
import { Fatal, members } from "./errors.js";
import { asking } from "./sdk.js";

const ID = 0, QUEUE = 1, TENANT = 2, PLUGIN = 3, PREVIOUS_ERROR = 4, PARENT = 5, KEY = 6, TRACEPARENT = 7, HEADERS = 8, DEPENDENCIES = 9;
const ATTEMPT = 0, MAX_ATTEMPTS = 1, DEADLINE = 2, RESCHEDULES = 4;

// What reads the result of a task that this one waited for. Comparisons and JSON see its id and end alone.
const readers = {
  bytes: { value() { return task.resultOf(this.id); } },
  text: { value() { return native.decode(this.bytes()); } },
  json: { value() { return parseJSON(this.text(), `the result of ${this.id} is not JSON`); } },
};

class Task {
  get id() { return native.taskText(ID); }
  get queue() { return native.taskText(QUEUE); }
  get tenant() { return native.taskText(TENANT); }
  get plugin() { return native.taskText(PLUGIN); }
  get attempt() { return native.taskNumber(ATTEMPT); }
  get maxAttempts() { return native.taskNumber(MAX_ATTEMPTS); }
  get reschedules() { return native.taskNumber(RESCHEDULES); }
  get deadline() {
    const ms = native.taskNumber(DEADLINE);
    return ms > 0 ? new Date(ms) : undefined;
  }
  get key() { return native.taskText(KEY); }
  get parent() { return native.taskText(PARENT); }
  get previousError() { return native.taskText(PREVIOUS_ERROR); }
  get traceparent() { return native.taskText(TRACEPARENT); }
  get headers() {
    return Object.fromEntries(native.taskText(HEADERS).split("\n").slice(0, -1).map((line) => {
      const colon = line.indexOf(": ");
      return [line.slice(0, colon), line.slice(colon + 2)];
    }));
  }
  dependencies() {
    return native.taskText(DEPENDENCIES).split("\n").slice(0, -1).map((line) => {
      const [id, end] = line.split(" ");
      return Object.defineProperties({ id, end }, readers);
    });
  }
  resultOf(id) { return asking(id, () => native.dependencyResult(String(id))); }
  get cancelled() { return native.cancelled(); }
  bytes() { return native.input(); }
  text() { return native.inputText(); }
  json() {
    try {
      return native.inputJSON();
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw new Fatal(notJSON(native.inputText(), "the input is not JSON", error)); // another attempt would have the same input
    }
  }

  toJSON() {
    const { id, queue, tenant, plugin, attempt, maxAttempts, reschedules, deadline, key, parent, previousError, traceparent, headers } = this;
    return { id, queue, tenant, plugin, attempt, maxAttempts, reschedules, deadline, key, parent, previousError, traceparent, headers };
  }
}

members.set("task", Object.getOwnPropertyNames(Task.prototype)).set("job", members.get("task"));

// What BullMQ's jobs have and a task does not, with the remedies.
const bullmq = {
  data: "use task.json()", name: "use task.queue", queueName: "use task.queue", opts: "use task.maxAttempts and task.deadline",
  attemptsMade: "use task.attempt, which is 1 for the first", attemptsStarted: "use task.attempt",
  progress: "use progress(0.5) of @quern/sdk", updateProgress: "use progress(0.5) of @quern/sdk", log: "use log of @quern/sdk, or console.log",
  update: "use checkpoint.save of @quern/sdk", updateData: "use checkpoint.save of @quern/sdk",
  moveToDelayed: "throw new Retry(message, { delay })", moveToFailed: "throw an error", moveToCompleted: "return the result", returnvalue: "return the result",
  discard: "throw new Fatal(message)", extendLock: "leave it out: the host renews its hold", getChildrenValues: "use task.dependencies()",
  getDependencies: "use task.dependencies()", moveToWaitingChildren: "enqueue a task with after: [ids]",
};
for (const [name, remedy] of Object.entries(bullmq)) {
  Object.defineProperty(Task.prototype, name, { get() { throw new TypeError(`a task has no ${name}: ${remedy}`); } });
}

// Made before the snapshot, so that no task has to.
export const task = new Task();

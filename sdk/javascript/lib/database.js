// PostgreSQL for testing.js, by the package pg. A database has one transaction for as long as its host lives, which is undone at the
// end; the transactions of tasks are savepoints in it.

import { MessageChannel, receiveMessageOnPort, Worker } from "node:worker_threads";

import { QuernError } from "./errors.js";

const SAVEPOINT = '"quern"', BYTEA = 17, PATIENCE = 60_000;
const BEGIN = [
  "BEGIN", "SET LOCAL TimeZone = 'UTC'", "SET LOCAL DateStyle = 'ISO, MDY'", "SET LOCAL IntervalStyle = 'postgres'",
  "SET LOCAL bytea_output = 'hex'", "SET LOCAL extra_float_digits = 1", "SET LOCAL lock_timeout = '10s'",
];
const WORDS = ["SELECT", "VALUES", "TABLE", "WITH", "INSERT", "UPDATE", "DELETE", "MERGE", "EXPLAIN", "DECLARE", "FETCH", "MOVE", "CLOSE", "SAVEPOINT", "RELEASE"];

function refuse(code, call, message) {
  throw new QuernError(code, call, message);
}

// A database of a test host. Functions of the SDK return when the host has answered, so a worker asks the database.
export class Database {
  #port;
  #signal = new Int32Array(new SharedArrayBuffer(4));
  #worker;
  #run; // which has begun a transaction
  #refused; // the error after which all statements are refused
  #steps = new Map();

  constructor(url) {
    const { port1, port2 } = new MessageChannel();
    this.#port = port1;
    this.#worker = new Worker(new URL("./database-worker.js", import.meta.url), { workerData: { url, port: port2, signal: this.#signal }, transferList: [port2] });
    this.#worker.unref();
    for (const statement of BEGIN) this.#do(statement);
  }

  // Undoes what tasks have changed.
  close() { return this.#worker.terminate(); }

  // Returns the answer in the form of the engine.
  query(run, statement, parameters) {
    const [, word, to] = /^(?:[\s(]|--[^\r\n]*|\/\*.*?\*\/)*([a-z_]*)(?:\s+(?:WORK\s+|TRANSACTION\s+)?(TO)\b)?/is.exec(statement);
    if (!WORDS.includes(word.toUpperCase()) && !(word.toUpperCase() === "ROLLBACK" && to)) {
      refuse("EDENIED", "sql", `a statement that begins with ${JSON.stringify(word)}: statements begin with ${WORDS.join(", ")} or ROLLBACK TO`);
    }
    if (this.#run === undefined) {
      this.#do(`SAVEPOINT ${SAVEPOINT}`);
      this.#run = run;
    }
    if (this.#run !== run) refuse("EAGAIN", "sql", "another task of this test host uses the database: await it before the next one");
    const answer = this.#ask(statement, valuesOf(parameters));
    this.#refused = Array.isArray(answer) ? undefined : this.#refused ?? answer;
    return answer;
  }

  // Checks what a commit checks, and keeps the changes. Returns the answer.
  commit(run) {
    if (this.#run !== run) return [0, [], [], []];
    for (const check of ["SAVEPOINT quern_check", "SET CONSTRAINTS ALL IMMEDIATE", "ROLLBACK TO quern_check"]) {
      const answer = this.#ask(check);
      if (Array.isArray(answer)) continue;
      const refused = this.#refused ?? answer;
      this.rollback(run);
      return refused;
    }
    this.#do(`RELEASE ${SAVEPOINT}`);
    this.#run = this.#refused = undefined;
    return [0, [], [], []];
  }

  rollback(run) {
    if (this.#run !== run) return;
    this.#do(`ROLLBACK TO ${SAVEPOINT}`);
    this.#do(`RELEASE ${SAVEPOINT}`);
    this.#run = this.#refused = undefined;
  }

  step(run, step) { return this.#steps.get(JSON.stringify([run.id, step])); }

  commitStep(run, step, value) {
    if (this.step(run, step) !== undefined) {
      this.rollback(run);
      refuse("ECONFLICT", "sql_commit", "another run has done the step");
    }
    const answer = this.commit(run);
    if (Array.isArray(answer)) this.#steps.set(JSON.stringify([run.id, step]), value);
    return answer;
  }

  // Runs a statement that only fails if the connection does.
  #do(statement) {
    const answer = this.#ask(statement);
    if (!Array.isArray(answer)) refuse("EAGAIN", "sql", answer.M);
  }

  #ask(text, values = []) {
    this.#port.postMessage({ text, values });
    if (Atomics.wait(this.#signal, 0, 0, PATIENCE) === "timed-out") refuse("ELIMIT", "sql", "the statement takes longer than a minute");
    Atomics.store(this.#signal, 0, 0);
    const { broken, fields, affected, names, oids, rows } = receiveMessageOnPort(this.#port).message;
    if (broken !== undefined) refuse("EAGAIN", "sql", broken);
    if (fields !== undefined) return fields;
    const valueOf = (text, n) => (oids[n] === BYTEA && text !== null ? new Uint8Array(Buffer.from(text.slice(2), "hex")) : text);
    return [affected, names, oids, rows.map((row) => Object.fromEntries(row.map((text, n) => [names[n], valueOf(text, n)])))];
  }
}

// Returns the values of sdk/ABI.md as strings, null, and bytes.
function valuesOf(parameters) {
  const all = Buffer.from(parameters.buffer, parameters.byteOffset, parameters.length), values = [];
  for (let at = 0; at < all.length;) {
    const kind = all[at], end = at + 5 + all.readUInt32LE(at + 1);
    const data = all.subarray(at + 5, end);
    values.push(kind === 0 ? null : kind === 1 ? data.toString() : new Uint8Array(data));
    at = end;
  }
  return values;
}

// The guest of the conformance kit in AssemblyScript: it makes the calls that its input lists, one a line, and writes what each was
// answered. README.md, one folder up, describes them.
import {
  Bucket, Database, Enqueue, Errno, Failure, Fields, Params, Publish, Request, Task,
  checkpoint, config, exit, log, monotonic, now, progress, random, retry, run, secret, sleep, sys, textOf, utf8, write,
} from "@quern/assemblyscript";
import * as raw from "./raw";
import { bytes, number } from "./words";

const SHOWN = 64;

let task = new Task();
let remembered = new ArrayBuffer(0);
let words: string[] = [];
let failure = new Failure(); // of the call under way

function word(i: i32): string {
  return i < words.length ? words[i] : "";
}

// A text of any bytes: those that are no UTF-8 become U+FFFD, as in the input of a task.
function text(i: i32): string {
  return textOf(bytes(word(i)));
}

function n(i: i32): i64 {
  return number(word(i));
}

// Writes what a call was answered: pieces of more than 64 bytes as their length.
function tell(verb: string, answer: string, pieces: ArrayBuffer[] = []): void {
  write(verb + " " + answer);
  for (let i = 0; i < pieces.length; i++) {
    write(" ");
    if (pieces[i].byteLength > SHOWN) write("#" + pieces[i].byteLength.toString());
    else write(pieces[i]);
  }
  write("\n");
}

// Writes the answer of the call under way, or its failure.
function told(pieces: ArrayBuffer[] = []): void {
  tell(words[0], failure.failed ? failure.name : "ok", failure.failed ? [] : pieces);
}

function toldText(answer: string): void {
  told([utf8(answer)]);
}

function toldFound(value: ArrayBuffer | null): void {
  if (!value && !failure.failed) failure.code = Errno.ENOTFOUND;
  told(value ? [value] : []);
}

// ---- The start ----

const started = new Map<string, string>();

function seen(name: string): void {
  started.set(name, failure.name);
  failure = new Failure();
}

started.set("config", config("size") !== null ? "ok" : "ENOTFOUND");
log(2, "start", null, failure);
seen("log");
random(1, failure);
seen("random");
started.set("clock", now() > 0 ? "ok" : "too early");
new Bucket("kit").get("start", failure);
seen("get");
secret("api_key", failure);
seen("secret");
checkpoint.save("start", failure);
seen("save");
checkpoint.load(failure);
seen("load");
failure.code = <Errno>min(sys.input_size(), 0);
seen("size");
failure.code = <Errno>min(sys.task_text(0), 0);
seen("text");

// ---- Calls ----

// Calls about the task; whether the verb is one of them.
function ofTask(verb: string): bool {
  if (verb == "write") write(bytes(word(1)));
  else if (verb == "end") end(<i32>n(1));
  else if (verb == "retry") {
    const ms = n(1);
    retry(text(2), abs(ms), ms < 0);
  } else if (verb == "trap") unreachable();
  else if (verb == "size") toldText(task.input.byteLength.toString());
  else if (verb == "sum") toldText(sum().toString());
  else if (verb == "text") toldText(field(<i32>n(1)));
  else if (verb == "header") {
    const headers = task.headers;
    toldText(headers.has(word(1)) ? headers.get(word(1)) : "");
  } else if (verb == "number") toldText((n(1) == 4 ? task.reschedules : n(1) == 1 ? task.maxAttempts : task.attempt).toString());
  else if (verb == "deadline") toldText(((task.deadline + 30000) / 60000).toString()); // in minutes: the host's clock and Redis's differ
  else if (verb == "cancelled") toldText(task.cancelled ? "1" : "0");
  else if (verb == "await") wait();
  else if (verb == "log") logged();
  else if (verb == "progress") {
    progress(<f64>n(1) / 100, text(2), failure);
    told();
  } else if (verb == "save") {
    checkpoint.save(bytes(word(1)), failure);
    told();
  } else if (verb == "load") toldFound(checkpoint.load(failure));
  else if (verb == "dependencies") told(task.dependencies(failure).map<ArrayBuffer>((d) => utf8(d.id + " " + d.end)));
  else if (verb == "result") told([task.resultOf(text(1), failure)]);
  else if (verb == "enqueue") enqueue();
  else if (verb == "publish") publish();
  else return false;
  return true;
}

// Ends the task; with 0 it is complete, whatever error was set.
function end(status: i32): void {
  exit(status, text(2));
}

function sum(): u32 {
  let sum: u32 = 2166136261;
  const input = Uint8Array.wrap(task.input);
  for (let i = 0; i < input.length; i++) sum = (sum ^ input[i]) * 16777619;
  return sum;
}

function field(i: i32): string {
  const fields = [task.id, task.queue, task.tenant, task.plugin, task.previousError, task.parent, task.key, task.traceparent];
  return fields[i];
}

function wait(): void {
  progress(0, "waiting");
  while (!task.cancelled) sleep(5);
  told();
}

function logged(): void {
  let fields: Fields | null = null;
  for (let i = 3; i < words.length; i += 2) fields = (fields || new Fields()).text(text(i), text(i + 1));
  log(<i32>n(1), text(2), fields, failure);
  told();
}

function enqueue(): void {
  const child = new Enqueue(text(1));
  for (let i = 3; i < words.length; i += 2) {
    const option = words[i];
    if (option == "id") child.id(text(i + 1));
    else if (option == "key") child.key(text(i + 1));
    else if (option == "label") child.label("kit", text(i + 1));
    else if (option == "header") child.header("kit", text(i + 1));
    else if (option == "unique") child.unique(text(i + 1));
    else if (option == "after") child.after([text(i + 1)]);
    else if (option == "when") child.when(text(i + 1));
    else if (option == "priority") child.priority(n(i + 1));
    else if (option == "delay") child.delay(n(i + 1));
    else if (option == "at") child.at(n(i + 1));
    else if (option == "attempts") child.maxAttempts(n(i + 1));
    else if (option == "fair_key") child.fair(text(i + 1), n(words.indexOf("fair_weight") + 1));
    else if (option == "concurrency_key") child.concurrency(text(i + 1), n(words.indexOf("max_concurrent") + 1));
    else if (option == "timeout") child.timeout(n(i + 1));
  }
  toldText(child.send(bytes(word(2)), failure));
}

function publish(): void {
  let publication = new Publish(text(words.indexOf("topic") + 1));
  for (let i = 3; i < words.length; i += 2) {
    if (words[i] == "id") publication = publication.id(text(i + 1));
    else if (words[i] == "attribute") publication = publication.attribute("kit", text(i + 1));
  }
  toldText(publication.send(bytes(word(2)), failure));
}

// Calls of the store, whose first words are a bucket and a key.
function ofStore(verb: string): bool {
  const bucket = new Bucket(text(1)), key = text(2);
  if (verb == "get") toldFound(bucket.get(key, failure));
  else if (verb == "set") {
    bucket.set(key, bytes(word(3)), n(4), failure);
    told();
  } else if (verb == "delete") toldText(bucket.delete(key, failure) ? "1" : "0");
  else if (verb == "increment") toldText(bucket.increment(key, n(3), failure).toString());
  else if (verb == "swap") swap(bucket, key);
  else if (verb == "list") told(bucket.list(key, text(3), <i32>n(4), failure).map<ArrayBuffer>((k) => utf8(k)));
  else return false;
  return true;
}

function swap(bucket: Bucket, key: string): void {
  const swap = bucket.swap(key, word(3) == "!" ? null : bytes(word(3)), bytes(word(4)), n(5), failure);
  const present = swap.present;
  if (present) tell(words[0], "ECONFLICT", [present]);
  else if (!swap.done && !failure.failed) tell(words[0], "ECONFLICT");
  else told();
}

// Calls of databases, whose first word is a name.
function ofDatabase(verb: string): bool {
  const database = new Database(text(1));
  if (verb == "sql") toldSQL(statement(database));
  else if (verb == "kinds") {
    kinds(database);
    toldSQL();
  } else if (verb == "commit") {
    database.commit(failure);
    toldSQL();
  } else if (verb == "rollback") {
    database.rollback(failure);
    toldSQL();
  } else if (verb == "step") toldSQL(step(database));
  else return false;
  return true;
}

// Writes the answer of the call under way, or its failure: an error of the database as its SQLSTATE and constraint.
function toldSQL(pieces: ArrayBuffer[] = []): void {
  const error = failure.sql;
  if (!error) told(pieces);
  else tell(words[0], error.state, error.constraint.length > 0 ? [utf8(error.constraint)] : []);
}

function statement(database: Database): ArrayBuffer[] {
  const params = new Params(), end = 3 + <i32>n(2), pieces: ArrayBuffer[] = [];
  for (let i = 3; i < end; i++) params.add<string | null>(word(i) == "!" ? null : text(i));
  const rows = database.query(words.slice(end).join(" "), params, failure);
  pieces.push(utf8(rows.affected.toString()));
  while (rows.next()) {
    for (let i = 0; i < rows.columns.length; i++) {
      const value = rows.get<string | null>(rows.columns[i].name);
      pieces.push(utf8(value ? value : "!"));
    }
  }
  return pieces;
}

function kinds(database: Database): void {
  const row = database.query("SELECT * FROM kinds WHERE id = 'a'", null, failure);
  if (!row.next()) return;
  const params = new Params().add(row.get<bool>("flag")).add(row.get<i16>("small")).add(row.get<i64>("large")).add(row.get<string>("exact"))
    .add(row.get<f64>("real")).add(row.get<string>("word")).add(row.get<string | null>("missing")).add(row.get<string>("document"))
    .add(row.get<ArrayBuffer>("bytes")).add(row.get<(string | null)[]>("numbers")).add(row.get<(string | null)[]>("words"))
    .time(row.time("at")).add(row.get<string>("ever")).add(row.get<string>("key")).add(row.get<string>("day"));
  database.exec("INSERT INTO kinds VALUES ('b', $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)", params, failure);
}

function step(database: Database): ArrayBuffer[] {
  let value = database.step(word(2), failure);
  if (!value && !failure.failed) {
    database.exec(words.slice(4).join(" "), null, failure);
    if (failure.failed) database.rollback(); // keeps the failure of the statement
    else value = database.commitStep(word(2), bytes(word(3)), failure);
  }
  return value ? [value] : [];
}

// Calls of the rest of the host.
function ofHost(verb: string): bool {
  if (verb == "http") request();
  else if (verb == "config") {
    const value = config(text(1));
    toldFound(value !== null ? utf8(value) : null);
  } else if (verb == "secret") told([secret(text(1), failure)]);
  else if (verb == "clock") clock();
  else if (verb == "sleep") {
    const before = monotonic();
    sleep(n(1), failure);
    if (!failure.failed && monotonic() - before < n(1) * 1000000) toldText("too short");
    else told();
  } else if (verb == "random") toldText(hex(random(8, failure)));
  else if (verb == "remember") {
    told([remembered]);
    remembered = bytes(word(1));
  } else if (verb == "start") tell(verb, started.get(word(1)) == "OK" ? "ok" : started.get(word(1)));
  else if (verb == "peek") told([raw.peek(<i32>n(1))]);
  else if (verb == "raw") {
    const answer = raw.call(words);
    words = words.slice(1); // its name is in the verb's place
    failure.code = <Errno>min(answer, 0);
    toldText(answer.toString());
  } else return false;
  return true;
}

function request(): void {
  const answer = new Request(text(1), text(2)).header("X-Ask", text(3)).body(bytes(word(4))).timeout(n(5)).send(failure);
  told([utf8(answer.status.toString()), utf8(answer.header("X-Answer") || ""), answer.body]);
}

function clock(): void {
  const real = now(), before = monotonic();
  sleep(1);
  if (n(1) == 0 && real < 1700000000000000000) toldText("too early");
  else if (n(1) == 1 && monotonic() - before < 1000000) toldText("back");
  else told();
}

function hex(buffer: ArrayBuffer): string {
  let digits = "";
  const all = Uint8Array.wrap(buffer);
  for (let i = 0; i < all.length; i++) digits += all[i].toString(16).padStart(2, "0");
  return digits;
}

// ---- The handler ----

function line(text: string): void {
  words = text.split(" ");
  if (words[0] == "on") { // for one attempt alone
    if (n(1) != task.attempt) return;
    words = words.slice(2);
  } else if (words[0] == "once") { // for a run that finds no checkpoint, and leaves one
    if (checkpoint.load()) return;
    checkpoint.save("once");
    words = words.slice(1);
  }
  const verb = word(0);
  if (verb.length == 0 || verb.startsWith("#")) return;
  failure = new Failure();
  if (!ofTask(verb) && !ofStore(verb) && !ofDatabase(verb) && !ofHost(verb)) tell(verb, "is no call of this guest");
}

function handle(given: Task): void {
  task = given;
  const lines = task.text.split("\n");
  for (let i = 0; i < lines.length; i++) line(lines[i]);
}

export function quern_handle(): i32 {
  return run<void>(handle);
}

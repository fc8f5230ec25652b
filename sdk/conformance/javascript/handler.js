// The guest of the conformance kit in JavaScript: it makes the calls that its input lists, one a line, and writes what each was
// answered. README.md, one folder up, describes them.
import { Fatal, Retry, QuernError, SQLError, checkpoint, config, database, enqueue, http, kv, log, progress, publish, secrets } from "@quern/sdk";

const encoder = new TextEncoder();
const SHOWN = 64;

let task;
let output; // pieces, of bytes
let remembered = "";

// What a call ends the task with.
class End {
  constructor(error) { this.error = error; }
}

// The bytes that a word stands for: %61 is a byte, a trailing *3 repeats all before it, and - alone is nothing.
function bytes(word) {
  if (word === "-") return new Uint8Array();
  let times = 1;
  const star = /^(.+)\*(\d+)$/.exec(word);
  if (star) [word, times] = [star[1], Number(star[2])];
  const one = [];
  for (let i = 0; i < word.length; i++) {
    if (word[i] === "%") {
      one.push(Number.parseInt(word.slice(i + 1, i + 3), 16));
      i += 2;
    } else {
      one.push(...encoder.encode(word[i]));
    }
  }
  const all = new Uint8Array(one.length * times);
  for (let i = 0; i < times; i++) all.set(one, i * one.length);
  return all;
}

const text = (word) => new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes(word));
const number = (word) => Number(word || 0);

// Writes what a call was answered: pieces of more than 64 bytes as their length.
function tell(verb, answer, ...data) {
  output.push(encoder.encode(`${verb} ${answer}`));
  for (const piece of data) {
    const raw = piece instanceof Uint8Array ? piece : encoder.encode(String(piece));
    output.push(encoder.encode(" "), raw.length > SHOWN ? encoder.encode(`#${raw.length}`) : raw);
  }
  output.push(encoder.encode("\n"));
}

const told = (verb, value) => (value === undefined ? tell(verb, "ENOTFOUND") : tell(verb, "ok", value));

const wait = (ms) => new Promise((done) => setTimeout(done, ms));

function failed(call) {
  try {
    call();
  } catch (error) {
    if (error instanceof QuernError) return error.code;
    throw error;
  }
  return "ok";
}

const started = {
  config: failed(() => config.get("size")) === "ok" && config.get("size") !== undefined ? "ok" : "ENOTFOUND",
  log: failed(() => log.info("start")),
  random: failed(() => crypto.getRandomValues(new Uint8Array(1))),
  clock: Date.now() > 1.7e12 ? "ok" : "too early",
  get: failed(() => kv("kit").get("start")),
  secret: failed(() => secrets.get("api_key")),
  save: failed(() => checkpoint.save("start")),
  load: failed(() => checkpoint.load()),
};

const fields = ["id", "queue", "tenant", "plugin", "previousError", "parent", "key", "traceparent"];
const options = { id: ["id", text], key: ["key", text], label: ["labels", (v) => ({ kit: text(v) })], header: ["headers", (v) => ({ kit: text(v) })], unique: ["unique", (v) => ({ key: text(v) })],
  after: ["after", (v) => [text(v)]], when: ["when", text], priority: ["priority", number], delay: ["delay", number], at: ["at", number], attempts: ["maxAttempts", number], timeout: ["timeout", number],
  fair_key: ["fairKey", text], fair_weight: ["fairWeight", number], concurrency_key: ["concurrencyKey", text], max_concurrent: ["maxConcurrent", number] };

const calls = {
  write: ([, word]) => output.push(bytes(word)),
  end([, status, why]) {
    const message = text(why);
    throw new End(status === "0" ? undefined : status === "65" ? new Fatal(message) : status === "75" ? new Retry(message) : message);
  },
  retry([, ms, why]) { throw new End(new Retry(text(why), { delay: Math.abs(number(ms)), key: number(ms) < 0 })); },
  json: () => task.json(),
  size: ([verb]) => tell(verb, "ok", task.bytes().length),
  sum([verb]) {
    let sum = 2166136261;
    for (const byte of task.bytes()) sum = Math.imul(sum ^ byte, 16777619) >>> 0;
    tell(verb, "ok", sum);
  },
  header: ([verb, name]) => tell(verb, "ok", task.headers[name] ?? ""),
  text: ([verb, field]) => tell(verb, "ok", task[fields[number(field)]]),
  number: ([verb, field]) => tell(verb, "ok", field === "4" ? task.reschedules : field === "1" ? task.maxAttempts : task.attempt),
  deadline: ([verb]) => tell(verb, "ok", task.deadline ? Math.round(task.deadline.getTime() / 60000) : 0), // in minutes: the host's clock and Redis's differ
  cancelled: ([verb]) => tell(verb, "ok", Number(task.cancelled)),
  async await([verb]) {
    progress(0, "waiting");
    while (!task.cancelled) await wait(5);
    tell(verb, "ok");
  },
  log([verb, level, line, ...pairs]) {
    let members;
    for (let i = 0; i < pairs.length; i += 2) members = { ...members, [text(pairs[i])]: text(pairs[i + 1]) };
    log(number(level), text(line), members);
    tell(verb, "ok");
  },
  progress([verb, hundredths, message]) {
    progress(number(hundredths) / 100, text(message));
    tell(verb, "ok");
  },
  save([verb, value]) {
    checkpoint.save(bytes(value));
    tell(verb, "ok");
  },
  load: ([verb]) => told(verb, checkpoint.load()),
  get: ([verb, bucket, key]) => told(verb, kv(text(bucket)).get(text(key))),
  set([verb, bucket, key, value, ttl]) {
    kv(text(bucket)).set(text(key), bytes(value), { ttl: number(ttl) });
    tell(verb, "ok");
  },
  delete: ([verb, bucket, key]) => tell(verb, "ok", Number(kv(text(bucket)).delete(text(key)))),
  increment: ([verb, bucket, key, delta]) => tell(verb, "ok", kv(text(bucket)).increment(text(key), BigInt(delta))),
  swap([verb, bucket, key, old, value, ttl]) {
    try {
      kv(text(bucket)).swap(text(key), old === "!" ? undefined : bytes(old), bytes(value), { ttl: number(ttl) });
    } catch (error) {
      if (error.present === undefined) throw error;
      tell(verb, error.code, error.present);
      return;
    }
    tell(verb, "ok");
  },
  list: ([verb, bucket, prefix, after, limit]) => tell(verb, "ok", ...kv(text(bucket)).list({ prefix: text(prefix), after: text(after), limit: number(limit) })),
  http([verb, method, url, value, body, ms]) {
    const answer = http({ method: text(method), url: text(url), headers: { "X-Ask": text(value) }, body: bytes(body), timeout: number(ms) });
    tell(verb, "ok", answer.status, answer.headers["x-answer"]?.[0] ?? "", answer.body);
  },
  sql([verb, name, count, ...words]) {
    const values = words.splice(0, number(count)).map((word) => (word === "!" ? null : text(word)));
    const rows = database(name).query(words.join(" "), values);
    const shown = (value) => (typeof value === "boolean" ? (value ? "t" : "f") : value ?? "!");
    tell(verb, "ok", rows.affected, ...rows.flatMap((row) => Object.values(row).map(shown)));
  },
  kinds([verb, name]) {
    const row = database(name).queryRow("SELECT * FROM kinds WHERE id = 'a'");
    const { at } = database(name).queryRow("SELECT at::text FROM kinds WHERE id = 'a'"); // a Date has milliseconds
    const values = Object.values({ ...row, id: "b", at, document: JSON.stringify(row.document) }); // null would be NULL
    database(name).execute(`INSERT INTO kinds VALUES (${values.map((_, n) => `$${n + 1}`).join(", ")})`, values);
    tell(verb, "ok");
  },
  commit([verb, name]) {
    database(name).commit();
    tell(verb, "ok");
  },
  rollback([verb, name]) {
    database(name).rollback();
    tell(verb, "ok");
  },
  async step([verb, name, step, value, ...words]) {
    const done = await database(name).once(step, () => {
      database(name).execute(words.join(" "));
      return text(value);
    });
    tell(verb, "ok", done);
  },
  config: ([verb, name]) => told(verb, config.get(text(name))),
  secret: ([verb, name]) => tell(verb, "ok", secrets.bytes(text(name))),
  async clock([verb, id]) {
    const [real, monotonic] = [Date.now(), performance.now()];
    await wait(1);
    if (id === "0" && real < 1.7e12) tell(verb, "ok", "too early");
    else if (id === "1" && performance.now() - monotonic < 1) tell(verb, "ok", "back");
    else tell(verb, "ok");
  },
  async sleep([verb, ms]) {
    const before = performance.now();
    await wait(number(ms));
    tell(verb, "ok", ...(performance.now() - before < number(ms) ? ["too short"] : []));
  },
  random: ([verb]) => tell(verb, "ok", Array.from(crypto.getRandomValues(new Uint8Array(8)), (b) => b.toString(16).padStart(2, "0")).join("")),
  remember([verb, word]) {
    tell(verb, "ok", remembered);
    remembered = text(word);
  },
  enqueue([verb, queue, body, ...pairs]) {
    let chosen;
    for (let i = 0; i < pairs.length; i += 2) {
      const [name, convert] = options[pairs[i]];
      chosen = { ...chosen, [name]: convert(pairs[i + 1]) };
    }
    tell(verb, "ok", enqueue(text(queue), bytes(body), chosen));
  },
  publish([verb, , body, ...pairs]) {
    const { topic, id, attribute } = Object.fromEntries(Array.from({ length: pairs.length / 2 }, (_, i) => [pairs[2 * i], text(pairs[2 * i + 1])]));
    tell(verb, "ok", publish(topic, bytes(body), { id, attributes: attribute === undefined ? undefined : { kit: attribute } }));
  },
  dependencies: ([verb]) => tell(verb, "ok", ...task.dependencies().map(({ id, end }) => `${id} ${end}`)),
  result: ([verb, id]) => tell(verb, "ok", task.resultOf(text(id))),
  start: ([verb, name]) => tell(verb, started[name]),
};

async function line(words) {
  if (words[0] === "on") { // for one attempt alone
    if (number(words[1]) !== task.attempt) return;
    words = words.slice(2);
  } else if (words[0] === "once") { // for a run that finds no checkpoint, and leaves one
    if (checkpoint.load() !== undefined) return;
    checkpoint.save("once");
    words = words.slice(1);
  }
  const [verb] = words;
  if (verb === "" || verb.startsWith("#")) return;
  if (!calls[verb]) {
    tell(verb, "is no call of this guest");
    return;
  }
  try {
    await calls[verb](words);
  } catch (error) {
    if (error instanceof SQLError) tell(verb, error.sqlstate, ...(error.constraint ? [error.constraint] : []));
    else if (error instanceof QuernError) tell(verb, error.code);
    else throw error;
  }
}

export default async function (given) {
  task = given;
  output = [];
  try {
    for (const words of task.text().split("\n")) await line(words.split(" "));
  } catch (error) {
    if (!(error instanceof End)) throw error;
    if (error.error !== undefined) throw error.error;
  }
  const all = new Uint8Array(output.reduce((size, piece) => size + piece.length, 0));
  let at = 0;
  for (const piece of output) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}

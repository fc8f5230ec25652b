import assert from "node:assert/strict";
import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

import { checkpoint, config, database, enqueue, Failure, Fatal, http, kv, log, progress, publish, QuernError, Retry, secrets } from "@quern/sdk";
import { testHost } from "@quern/sdk/testing";

test("results", async () => {
  for (const [returned, output] of [[undefined, ""], ["é", "é"], [new Uint8Array([104, 105]), "hi"], [{ a: [1] }, '{"a":[1]}'], [null, "null"]]) {
    const result = await testHost().run(async () => returned);
    assert.deepEqual([result.status, result.text()], ["complete", output]);
  }
  const result = await testHost().run(() => () => 1);
  assert.deepEqual([result.status, result.error], ["failed", "TypeError: the result is a function, which JSON does not express: call it"]);
});

test("tasks", async () => {
  const deadline = new Date("2030-01-01T00:00:00Z");
  const given = { id: "x", queue: "q", attempt: 2, deadline, key: "k", headers: { b: "2", a: "1" }, after: { one: { n: 1 }, two: null }, cancelled: true };
  const result = await testHost().run((task) => {
    assert.deepEqual(task.json(), { n: "ü" });
    assert.deepEqual(task.deadline, deadline);
    assert.deepEqual(task.dependencies(), [{ id: "one", end: "complete" }, { id: "two", end: "failed" }]);
    assert.deepEqual(new TextDecoder().decode(task.resultOf("one")), '{"n":1}');
    const [one, two] = task.dependencies();
    assert.deepEqual([one.text(), one.json(), one.bytes().length], ['{"n":1}', { n: 1 }, 7]);
    assert.throws(() => two.json(), { code: "ENOTFOUND" });
    assert.throws(() => task.resultOf("two"), { code: "ENOTFOUND", message: "resultOf two: task two failed and has no result (ENOTFOUND)" });
    assert.throws(() => task.resultOf("three"), { code: "EINVAL" });
    return [task.id, task.queue, task.tenant, task.attempt, task.key, task.cancelled, task.headers];
  }, { n: "ü" }, given);
  assert.equal(result.error, "");
  assert.deepEqual(result.json(), ["x", "q", "default", 2, "k", true, { a: "1", b: "2" }]);
  await assert.rejects(testHost().run(() => {}, "", { atempt: 2 }), /run: atempt: expected id, /);
  assert.throws(() => testHost({ bucket: {} }), /testHost: bucket: expected config, /);
});

test("failures", async () => {
  const host = testHost();
  const thrown = new TypeError("bad");
  const run = (error) => host.run(() => { enqueue("q", 1); throw error; });
  assert.deepEqual(await run(thrown).then((r) => [r.status, r.error, r.thrown, r.enqueued]), ["failed", "TypeError: bad", thrown, []]);
  assert.deepEqual(await run(new Fatal("never")).then((r) => [r.status, r.error]), ["fatal", "never"]);
  assert.deepEqual(await run(new Retry("later", { delay: 1500 })).then((r) => [r.status, r.error, r.delay]), ["retry", "later", 1500]);
  const held = await run(new Retry("later", { delay: 1500, key: true }));
  assert.deepEqual([held.delay, held.key], [1500, true]);
  assert.equal((await run(new Retry("later", { delay: 1500 }))).key, false);
  assert.throws(() => new Retry("later", { key: true }), /key of Retry: true: write true, and a delay/);
  assert.throws(() => new Failure("later", { delay: 1, key: true }), /Failure: key: options are delay, cause/);
  assert.equal((await host.run((task) => task.json(), "{")).status, "fatal");
  assert.deepEqual(host.enqueued, []);
});

test("a rejected promise without a handler", async () => {
  const others = process.rawListeners("unhandledRejection");
  const host = testHost();
  const lost = (error, after) => async () => {
    enqueue("q", 1);
    Promise.reject(error);
    await after?.();
    return "done";
  };
  const bad = new TypeError("bad");
  assert.deepEqual(await host.run(lost(bad)).then((r) => [r.status, r.error, r.thrown]), ["failed", "unhandled rejection: TypeError: bad", bad]);
  const never = () => new Promise(() => {});
  assert.deepEqual(await host.run(lost(new Fatal("never"), never)).then((r) => [r.status, r.error]), ["fatal", "unhandled rejection: never"]);
  assert.deepEqual(host.enqueued, []);
  const handled = async () => { Promise.reject(bad).catch(() => {}); return "done"; };
  const both = await Promise.all([host.run(handled), host.run(lost(bad)), host.run(async () => "other")]);
  assert.deepEqual(both.map((r) => r.status), ["complete", "failed", "complete"]);
  assert.deepEqual(process.rawListeners("unhandledRejection"), others);
});

test("a timer that throws, and parts that JSON does not express", async () => {
  const others = process.rawListeners("uncaughtException");
  const late = new RangeError("late");
  const handler = () => new Promise((done) => {
    setTimeout(() => { throw late; });
    setTimeout(done, 1000, "done");
  });
  const [thrown, other] = await Promise.all([testHost().run(handler), testHost().run(() => "other")]);
  assert.deepEqual([thrown.status, thrown.error, thrown.thrown, other.status], ["failed", "RangeError: late", late, "complete"]);
  assert.deepEqual(process.rawListeners("uncaughtException"), others);
  const error = async (value) => (await testHost().run(() => value)).error;
  assert.match(await error({ a: 1n }), /^TypeError: result\.a is a bigint, /);
  assert.match(await error(1n), /^TypeError: the result is a bigint, /);
  assert.match(await error((job) => job), /^TypeError: the result is a function, /);
  const job = async (read) => (await testHost().run(read)).error;
  assert.match(await job((task) => task.data.id), /^TypeError: a task has no data: use task\.json\(\)$/);
});

test("the result of a failed task tells why it failed", async () => {
  const thrown = new TypeError("bad");
  const result = await testHost().run(() => { throw thrown; });
  for (const read of [() => result.text(), () => result.json()]) assert.throws(read, { message: "task failed: TypeError: bad", cause: thrown });
  const fatal = await testHost().run((task) => task.json(), "ok");
  assert.throws(() => fatal.json(), { message: /^task failed for good: the input is not JSON: it begins with "ok" \(/ });
  const none = await testHost().run(() => {});
  assert.throws(() => none.json(), { message: "the result is not JSON: it is empty" });
});

test("answers that are not JSON", async () => {
  const host = testHost({ http: () => ({ body: "<html>" }) });
  for (const [name, get] of [["fetch", async () => (await fetch("https://a.example/x?key=1")).json()], ["http", () => http("https://a.example/x?key=1").json()]]) {
    assert.match((await host.run(get)).error, new RegExp(`^SyntaxError: ${name}: the answer of GET https://a.example/x is not JSON: it begins with "<html>" `));
  }
});

test("unique, and other options that are wrong", async () => {
  for (const [options, error] of [
    [{ unique: { ttl: 5000 } }, "TypeError: unique.ttl: unique has key and duration (in milliseconds)"],
    [{ unique: "a" }, "TypeError: unique: a: use true, or { key, duration }"],
    [{ unique: { key: 5 } }, "TypeError: unique.key: 5: use a string"],
    [{ unique: { duration: 5 } }, "RangeError: unique.duration: 5: use milliseconds, 1000 to 3153600000000 (100 years)"],
    [{ unique: { for: "1h" } }, "RangeError: unique.duration: 1h: use milliseconds, 1000 to 3153600000000 (100 years)"],
    [{ priority: 101 }, "QuernError: enqueue q: option priority: 101: expected 0 to 100 (EINVAL)"],
    [{ when: "any" }, 'QuernError: enqueue q: option when: "any": expected it together with after (EINVAL)'],
  ]) assert.equal((await testHost().run(() => enqueue("q", 1, options))).error, error);
  const result = await testHost().run(() => enqueue("q", 1, { unique: { for: 5000 } }));
  assert.deepEqual(result.enqueued[0].options, { unique: { duration: 5000 } });
});

test("numbers of the store", async () => {
  const result = await testHost({ kv: { a: { n: String(2 ** 53 - 1) } } }).run(() => {
    assert.deepEqual([kv("a").increment("m", 2), kv("a").increment("m", 2n)], [2, 4n]);
    assert.throws(() => kv("a").increment("m", 1.5), /increment by 1.5: use a whole number below 2 \*\* 53, or a BigInt/);
    assert.throws(() => kv("a").increment("n"), /kv increment a\/n: the sum is 9007199254740992, which a number does not hold: add a BigInt, as in increment\(key, 1n\)/);
    assert.equal(kv("a").increment("n", 1n), 9007199254740993n);
  });
  assert.equal(result.error, "");
});

// A handler of another plugin has a copy of the package in that one's folder.
test("two copies of the package", async () => {
  const dir = await mkdtemp(join(tmpdir(), "quern-"));
  try {
    for (const name of ["index.js", "testing.js", "lib", "package.json"]) await cp(new URL(name, import.meta.url), join(dir, name), { recursive: true });
    const other = await import(pathToFileURL(join(dir, "index.js")));
    const { testHost: otherHost } = await import(pathToFileURL(join(dir, "testing.js")));
    for (const run of [testHost, otherHost]) {
      const result = await run({ kv: { a: {} } }).run(() => {
        other.kv("a").increment("n");
        console.log("once");
        throw new other.Fatal("never");
      });
      assert.deepEqual([result.status, result.error, result.log.length], ["fatal", "never", 1]);
    }
  } finally {
    await rm(dir, { recursive: true });
  }
});

test("services", async () => {
  const host = testHost({
    config: { size: "9" }, secrets: { key: "s" }, kv: { seen: { old: { n: 1 } } }, queues: ["mail.*"],
    http: ({ method, url, body, headers }) => (url.endsWith("/none") ? { status: 404 } : { headers: { "X-A": ["1", "2"] }, body: { method, url, body, type: headers["content-type"] } }),
  });
  const result = await host.run(async () => {
    const bucket = kv("seen");
    assert.equal(bucket.increment("n"), 1);
    assert.throws(() => bucket.swap("n", undefined, "x"), (e) => e.code === "ECONFLICT" && new TextDecoder().decode(e.present) === "1");
    bucket.swap("n", "1", "2");
    bucket.set("gone", "x", { ttl: 1 });
    while (bucket.get("gone") !== undefined) await new Promise((done) => setTimeout(done, 1));
    assert.deepEqual(bucket.json("old"), { n: 1 });
    assert.deepEqual(bucket.list(), ["n", "old"]);
    bucket.set("json", { n: [1] });
    bucket.swap("json", { n: [1] }, 5);
    assert.deepEqual([bucket.json("json"), bucket.delete("json")], [5, true]);
    bucket.set("wide", new Uint16Array([0x4241]));
    assert.deepEqual([bucket.text("wide"), bucket.delete("wide")], ["AB", true]);
    checkpoint.save({ at: 1 });
    assert.deepEqual(checkpoint.json(), { at: 1 });
    checkpoint.save("half");
    assert.throws(() => kv("seen").set("f", () => 1), TypeError);
    progress(0.5, "half");
    log.warn("low", { left: 3 });
    console.log("greeted %d", 2);
    const id = enqueue("mail.welcome", { to: "zoe" }, { delay: 2000, unique: { duration: 5000 }, id: "m" });
    publish("orders.made", "x", { attributes: { type: "a" } });
    assert.throws(() => enqueue("other"), { code: "EDENIED" });
    assert.throws(() => kv("none").get("a"), /kv get none\/a: grant the bucket to the test: testHost\(\{ kv: \{ "none": \{\} \} \}\) \(EDENIED\)/);
    assert.throws(() => secrets.get("none"), { code: "EDENIED" });
    const answer = http({ url: "https://a.example/1", method: "POST", body: "b" });
    assert.deepEqual([answer.status, answer.headers, answer.json().method], [200, { "x-a": ["1", "2"] }, "POST"]);
    const fetched = await fetch("https://a.example/none");
    const posted = await (await fetch("https://a.example/2", { method: "POST", body: "c" })).json();
    return [secrets.get("key"), config.get("size"), config.get("none") === undefined, id, fetched.status, posted];
  });
  assert.equal(result.error, "");
  assert.deepEqual(result.json(), ["s", "9", true, "m", 404, { method: "POST", url: "https://a.example/2", body: "c", type: "text/plain;charset=UTF-8" }]);
  assert.deepEqual(host.kv, { seen: { n: "2", old: { n: 1 } } });
  assert.deepEqual(host.enqueued, [{ queue: "mail.welcome", body: '{"to":"zoe"}', id: "m", options: { delay: 2000, unique: { duration: 5000 } } }]);
  assert.deepEqual(host.published.map(({ topic, body, attributes }) => [topic, body, attributes]), [["orders.made", "x", { type: "a" }]]);
  assert.deepEqual(result.log, [{ level: "warn", text: "low", fields: { left: 3 } }, { level: "info", text: "greeted 2", fields: {} }]);
  assert.deepEqual([result.progress, result.checkpoint], [[{ fraction: 0.5, message: "half" }], "half"]);
});

test("tasks side by side keep their own hosts", async () => {
  let resolve;
  const waits = new Promise((done) => (resolve = done));
  const one = testHost({ config: { n: "1" } }).run(async () => { await waits; return config.get("n"); });
  const two = testHost({ config: { n: "2" } }).run(async () => { resolve(); await null; return config.get("n"); });
  assert.deepEqual([(await one).text(), (await two).text()], ["1", "2"]);
});

test("outside of a task", async () => {
  assert.equal(config.get("n"), undefined);
  assert.throws(() => kv("a").get("b"), (e) => e instanceof QuernError && e.code === "ESTATE");
  const denied = await testHost().run(() => fetch("https://a.example/"));
  assert.match(denied.error, /^TypeError: fetch: GET https:\/\/a.example\/: answer the requests of the test: testHost\(\{ http: .* \(EDENIED\)$/);
});

test("databases", async () => {
  const host = testHost();
  const denied = await host.run(() => database("shop").execute("SELECT 1"));
  const remedy = 'give the database to the test: testHost({ databases: { "shop": "postgres://USER@HOST/DATABASE" } }), or test in the engine: quern plugin test --database shop=postgres://USER@HOST/DATABASE';
  assert.equal(denied.error, `QuernError: sql shop: ${remedy} (EDENIED)`);
  for (const [parameters, error] of [
    [42, "parameters are an array, not number: write query(statement, [42])"],
    [["a", undefined], "parameter 2 is undefined: write null for NULL"],
    [[() => 1], "parameter 1 is a function: write String(...)"],
    [[new Date(NaN)], "parameter 1 is an invalid Date"],
    [[[{ a: 1 }]], "parameter 1 is an array with an object: write JSON.stringify(...) of the array for json, or of each object for json[]"],
    [[{ a: 1n }], "parameter 1.a is a bigint, which JSON does not express: use String"],
  ]) {
    const result = await host.run(() => database("shop").query("SELECT $1", parameters));
    assert.equal(result.error, `TypeError: ${error}`);
  }
});

test("a database that is not there", async () => {
  const host = testHost({ databases: { shop: "postgres://nobody@127.0.0.1:1/shop" } });
  const result = await host.run(() => database("shop").execute("SELECT 1"));
  await host.close();
  assert.match(result.error, /^QuernError: sql shop: (connect ECONNREFUSED 127\.0\.0\.1:1|tests with a database need the package pg: npm install --save-dev pg) \(EAGAIN\)$/);
});

test("wrong arguments", async () => {
  const host = testHost({ kv: { b: {} }, config: { a: "1" }, queues: ["q"] });
  for (const [call, error] of [
    [() => kv("b").set("a", 1, 60), "kv(...).set: options 60: use an object with ttl"], [() => kv("b").set("a", 1, { tll: 60 }), "kv(...).set: tll: options are ttl"],
    [() => kv("b").set("a"), "kv(...).set: 1 argument: write kv(...).set(key, value, { ttl })"], [() => kv("b").get(undefined), 'kv("b"): key undefined: use a string'],
    [() => kv("b").list("a"), 'kv(...).list: options "a": use an object with prefix, after, limit'], [() => kv(), "kv: 0 arguments: write kv(bucket)"],
    [() => http("https://a.example", { method: "POST" }), "http: 2 arguments: write http({ method, url, headers, body, timeout })"],
    [() => enqueue("q", "x", "now"), 'enqueue: options "now": use an object with id, '], [() => enqueue("q", "name", {}, {}), "enqueue: 4 arguments: write enqueue(queue, body, { delay })"],
    [() => publish("t", "x", { key: "a" }), "publish: key: options are id, attributes"], [() => config.get("a", "b"), "config.get: 2 arguments: write config.get(name)"],
    [() => log.info("a", "b"), 'log: fields "b": use an object, such as { id: 7 }'], [() => log.error("a", new Error("b")), "log: fields Error: b: use an object, such as { error }"],
    [() => log.info("a", {}, {}), "log.info: 3 arguments: write log.info(text, { name: value })"], [() => new Retry("later", 60), "Retry: options 60: use an object with delay, key, cause"],
    [() => new Fatal("never", { deley: 60 }), "Fatal: deley: options are delay, cause"], [() => database("d").query("SELECT $1, $2", 1, 2), "database(...).query: 3 arguments: write database(...).query(statement, [parameter, ...])"],
  ]) {
    const result = await host.run(() => call());
    assert.ok(result.status === "failed" && result.error.startsWith(`TypeError: ${error}`), `${call}: ${result.error}`);
  }
  const result = await host.run(() => [kv("b").increment("n"), kv("b").list(), config.get("a"), new Retry("later", { delay: 1, cause: new Error("x") }).delay]);
  assert.deepEqual(result.json(), [1, ["n"], "1", 1]);
});

test("progress outside 0 to 1 is the nearer end, with a warning", async () => {
  const result = await testHost().run(() => {
    progress(50, "half");
    progress(NaN);
  });
  assert.deepEqual([result.progress, result.log], [
    [{ fraction: 1, message: "half" }], [{ level: "warn", text: "progress 50: use 0 to 1, such as 0.5", fields: {} }],
  ]);
  assert.match(result.error, /^QuernError: progress: NaN: use 0 to 1, such as 0.5 \(EINVAL\)/);
});

test("keys of new tasks", async () => {
  const host = testHost({ queues: ["q"] });
  const keys = { fairKey: "ada", fairWeight: 3, concurrencyKey: "c", maxConcurrent: 2 };
  const { enqueued } = await host.run(() => enqueue("q", 1, keys) && undefined);
  assert.deepEqual(enqueued[0].options, keys);
  for (const [options, message] of [
    [{ fairWeight: 2 }, /option fairWeight: 2: expected it together with fairKey/], [{ fairKey: "x", fairWeight: 1001 }, /option fairWeight: 1001: expected 0 to 1000/],
    [{ concurrencyKey: "ü".repeat(129) }, /option concurrencyKey: .*: expected at most 256 bytes/], [{ maxConcurrent: 2 }, /option maxConcurrent: 2: expected it together with concurrencyKey/],
  ]) {
    assert.match((await host.run(() => enqueue("q", 1, options))).error, message);
  }
});

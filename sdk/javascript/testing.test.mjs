import assert from "node:assert/strict";
import { test } from "node:test";

import { checkpoint, config, enqueue, Fatal, http, kv, log, progress, publish, QuernError, Retry, secrets } from "@quern/sdk";
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
    assert.deepEqual(JSON.parse(new TextDecoder().decode(task.resultOf("one"))), { n: 1 });
    assert.throws(() => task.resultOf("two"), { code: "ENOTFOUND" });
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
  assert.equal((await host.run((task) => task.json(), "{")).status, "fatal");
  assert.deepEqual(host.enqueued, []);
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
    const id = enqueue("mail.welcome", { to: "zoe" }, { delay: 2000, unique: { for: 5000 }, id: "m" });
    publish("orders.made", "x", { attributes: { type: "a" } });
    assert.throws(() => enqueue("other"), { code: "EDENIED" });
    assert.throws(() => kv("none").get("a"), /kv_get none\/a: grant the bucket to the test: testHost\(\{ kv: \{ "none": \{\} \} \}\) \(EDENIED\)/);
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
  assert.deepEqual(host.enqueued, [{ queue: "mail.welcome", body: '{"to":"zoe"}', id: "m", options: { delay: 2000, unique: { for: 5000 } } }]);
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
  assert.match(denied.error, /^TypeError: fetch: http GET https:\/\/a.example\/: answer the requests of the test: testHost\(\{ http: .* \(EDENIED\)$/);
});

// Tests of the client on a real server, which cmd/quern's TestProducers starts: a queue echo whose handler returns its input and fails
// if that is empty, and a queue unserved that nobody serves.
import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

import { APIError, Client, NoTaskError, Queue, SignatureError, Task, TaskFailed, verify, WaitTimeout } from "./index.js";

const { PRODUCER_URL: url, PRODUCER_TOKEN: token, PRODUCER_TENANT: tenant } = process.env;
const client = new Client(url, { token, tenant });
const wait = { timeout: 60_000 };

test("a result", async () => {
  const options = { labels: { team: "core" }, headers: { "x-request": "7" }, key: "k" };
  const handle = await client.enqueue("echo", { to: "ada", größe: 1 }, options);
  const task = await handle.wait(wait);
  assert.deepEqual([handle.existed, task.status, task.json()], [false, "complete", { to: "ada", größe: 1 }]);
  assert.deepEqual([task.labels, task.headers["x-request"], task.key, task.attempts], [{ team: "core" }, "7", "k", 1]);
  const bytes = new Uint8Array([255, 0]);
  assert.deepEqual((await (await client.enqueue("echo", bytes)).wait(wait)).bytes, bytes);
  const large = "x".repeat(100_000); // more than the server shows with the task
  assert.equal((await (await client.enqueue("echo", large)).wait(wait)).text, large);
});

test("options", async () => {
  const handle = await client.queue("unserved").add("later", {
    delay: 3_600_000, timeout: 90_000, maxAttempts: 3, backoff: "linear", backoffBase: 500, jitter: false, priority: 70,
    deadline: new Date(Date.now() + 86_400_000), deadQueue: "letters",
  });
  const task = await handle.task();
  assert.deepEqual([task.status, task.finished, task.timeout_seconds], ["scheduled", false, 90]);
  assert.deepEqual(task.retry, { backoff: "linear", base_seconds: 0.5, jitter: false });
  assert.deepEqual([task.max_attempts, task.priority, task.dead_queue], [3, 70, "letters"]);
  assert.throws(() => task.bytes, /has no result to read: it is scheduled/);
  await assert.rejects(handle.wait({ timeout: 100 }), WaitTimeout);
  assert.deepEqual([await handle.cancel(), await handle.cancel()], [true, true]);
  await assert.rejects(handle.wait(wait), (error) => error instanceof TaskFailed && /failed \(cancelled\)/.test(error.message));
});

// Both requests that enqueue can carry every option. TestProducers compares what was sent with the API's document.
test("every option", async () => {
  const first = await client.enqueue("unserved", "first");
  for (const size of [3, 3 << 20]) { // a task of 3 MiB has a request of its own
    for (const time of [{ delay: 3_600_000 }, { at: new Date("2099-01-01") }]) {
      const id = `js-every-${size}-${Object.keys(time)}`;
      const task = await (await client.enqueue("unserved", "\0".repeat(size), {
        ...time, id, key: "k", fairKey: "acme", fairWeight: 3, concurrencyKey: "customer", maxConcurrent: 2, labels: { team: "core" }, headers: { "x-request": "7" }, priority: 70, timeout: 90_000,
        deadline: new Date("2100-01-01"), maxAttempts: 3, backoff: "exponential", backoffBase: 500, backoffMin: 100, backoffMax: 60_000,
        jitter: false, maxAge: 7_200_000, maxReschedules: 5, unique: { key: id, duration: 60_000 }, after: [first.id], when: "ended",
        open: true, deadQueue: "letters", parent: "js-parent", traceparent: `00-${"1".repeat(32)}-${"2".repeat(16)}-01`,
      })).task();
      assert.deepEqual([task.dead_queue, task.retry.max_reschedules], ["letters", 5]);
    }
  }
});

// Each field of a task in the types stands in the API's document.
test("fields", async () => {
  const answer = await fetch(`${url}/v1/openapi.json`, { headers: { authorization: `Bearer ${token}` } });
  const { properties } = (await answer.json()).components.schemas.Task;
  const [, types] = /^export class Task<Output = any> \{$(.*?)^\}$/ms.exec(await readFile(new URL("index.d.ts", import.meta.url), "utf8"));
  const names = [...types.matchAll(/^  readonly (\w+)\??:/gm)].map(([, name]) => name).filter((name) => !(name in Task.prototype));
  assert.ok(names.length > 8);
  for (const name of [...names, "result", "result_base64", "result_size", "withheld"]) assert.ok(name in properties, name);
});

test("a queue's options", async () => {
  const mail = client.queue("echo", { labels: { team: "core" }, maxAttempts: 2 });
  const task = await (await mail.add({ to: "bob" }, { maxAttempts: 3, key: "k" })).wait(wait);
  assert.deepEqual([task.json(), task.max_attempts, task.key, task.labels], [{ to: "bob" }, 3, "k", { team: "core" }]);
  const bulk = await mail.addBulk([{ parameters: "a" }, { parameters: "b", maxAttempts: 4 }]);
  assert.deepEqual((await Promise.all(bulk.map((handle) => handle.wait(wait)))).map((t) => t.max_attempts), [2, 4]);
  await assert.rejects(mail.add("welcome", { key: "k" }, { delay: 1 }), /no name of a job: use client.queue/);
  assert.throws(() => client.queue("echo", { attempts: 2 }), /unknown option "attempts": use maxAttempts$/);
  assert.throws(() => client.queue("echo", { id: "one" }), /id as an option of all tasks/);
});

// The code of the README runs as it stands there, on this server.
test("the README", async () => {
  const [, code] = /```js\n(.*?)```/s.exec(await readFile(new URL("README.md", import.meta.url), "utf8"));
  const folder = await mkdtemp(join(tmpdir(), "client-"));
  try {
    await writeFile(join(folder, "readme.mjs"), [
      ['"@quern/client"', JSON.stringify(String(new URL("index.js", import.meta.url)))], ['"http://127.0.0.1:9465"', JSON.stringify(url)],
      ['token: "..."', `token: ${JSON.stringify(token)}, tenant: ${JSON.stringify(tenant)}`], ['"mail"', '"echo"'], ["delay: 30_000", "delay: 100"],
      ['"eve-1"', '"js-eve-1"'],
    ].reduce((text, [shown, here]) => text.replace(shown, here), code));
    await import(pathToFileURL(join(folder, "readme.mjs")));
  } finally {
    await rm(folder, { recursive: true });
  }
  assert.equal((await client.task("js-eve-1")).queue, "echo");
});

test("once", async () => {
  const first = await client.enqueue("unserved", "once", { id: "js-once" });
  assert.deepEqual([first.id, first.existed], ["js-once", false]);
  assert.equal((await client.enqueue("js-nobody", "x")).unserved, true);
  const { warn } = console, warnings = [];
  console.warn = (text) => warnings.push(text);
  try {
    await client.enqueue("ecko", "x");
    await client.enqueue("ecko", "x");
  } finally {
    console.warn = warn;
  }
  assert.match(warnings.join("\n"), /^quern: no host serves the queue "ecko".*\becho\b/);
  assert.equal(warnings.length, 1);
  assert.equal((await client.enqueue("unserved", "once", { id: "js-once" })).existed, true);
  const unique = await client.enqueue("unserved", "u", { unique: { key: "js", duration: 60_000 } });
  const again = await client.enqueue("unserved", "v", { unique: "js" });
  assert.deepEqual([again.existed, again.id, unique.existed], [true, unique.id, false]);
});

test("many", async () => {
  const items = Array.from({ length: 1500 }, (_, n) => ({ parameters: { n } }));
  items.push({ parameters: "last", id: "js-last" }, { parameters: new Uint8Array([255]) });
  const handles = await client.queue("echo").addBulk(items);
  assert.deepEqual([handles.length, handles[1500].id, handles.some((h) => h.existed)], [1502, "js-last", false]);
  assert.deepEqual((await handles[1499].wait(wait)).json(), { n: 1499 });
  assert.deepEqual((await handles[1501].wait(wait)).bytes, new Uint8Array([255]));
  const joined = await client.enqueue("echo", undefined, { after: handles[0] });
  assert.deepEqual((await joined.wait(wait)).json(), { n: 0 });
  await assert.rejects(client.enqueue("unserved", undefined, { after: [handles[0], {}] }), /^TypeError: after .*: use a list of handles or IDs, such as \[handle\]$/);
  const wide = await client.enqueue("unserved", undefined, { after: [handles[0].id, ...handles.slice(1, 400)], labels: { "a=b": "c" } });
  assert.deepEqual((await wide.task()).labels, { "a=b": "c" });
  const large = await client.queue("echo").addBulk([{ parameters: "\0".repeat(3 << 20) }, { parameters: "small" }]);
  assert.deepEqual([(await large[0].wait(wait)).bytes.length, (await large[1].wait(wait)).text], [3 << 20, "small"]);
  await assert.rejects(client.enqueue("echo", "\0".repeat(3 << 20), { labels: { "a=b": "c" } }), /takes no names with =/);
});

test("failures", async () => {
  await assert.rejects((await client.enqueue("echo", "", { maxAttempts: 1 })).wait(wait), TaskFailed);
  await assert.rejects(client.task("js-none"), (error) => error instanceof NoTaskError && /: quern task ls shows those of a queue$/.test(error.message));
  await assert.rejects(client.enqueue("echo", "x", { priority: 700 }), /^TypeError: priority 700: use 0 to 100, higher ones first$/);
  await assert.rejects(client.enqueue("echo", "x", { maxAttempts: -7 }), (e) => e instanceof APIError && e.status === 422 && /; tasks\[0\]\.max_attempts: /.test(e.message));
  assert.throws(() => new Client("redis://127.0.0.1:6379"), /^TypeError: the URL is that of Redis, and Client speaks HTTP: /);
  await assert.rejects(new Client(url, { token: "wrong", tenant }).enqueue("echo", "x"), (e) => e.status === 401);
  await assert.rejects(client.enqueue("echo", "x", { dely: 1 }), /unknown option "dely": use delay$/);
  await assert.rejects(new Client("http://127.0.0.1:9", { retries: 1 }).enqueue("echo", "x"), /no answer from http:\/\/127.0.0.1:9/);
  const closed = createServer();
  await new Promise((resolve) => closed.listen(0, "127.0.0.1", resolve));
  const nowhere = `http://127.0.0.1:${closed.address().port}`;
  await new Promise((resolve) => closed.close(resolve));
  const refused = (e) => e instanceof WaitTimeout && /no answer from .*: connection refused: is quern dev, or a host with --admin, running there\?$/.test(e.message) && e.cause.cause.code === "ECONNREFUSED";
  await assert.rejects(new Client(nowhere, { retries: 100 }).wait("x", { timeout: 300 }), refused);
  const patience = { signal: AbortSignal.timeout(100) };
  await assert.rejects(new Client("http://127.0.0.1:9", { retries: 100 }).wait("x", patience), { name: "TimeoutError" });
  const abort = AbortSignal.timeout(50);
  await assert.rejects(client.wait((await client.enqueue("unserved", "x")).id, { signal: abort }), { name: "TimeoutError" });
});

// TestWebhookVerify has the deliveries of a host; this is the example of Standard Webhooks. The table is that of all languages.
test("verify", async () => {
  const table = JSON.parse(await readFile(new URL("../../testdata/webhooks.json", import.meta.url), "utf8")), ever = { tolerance: Infinity };
  for (const change of table.cases) {
    const { name, headers, body, secret, recent, error } = { ...table, ...change };
    for (const given of [headers, new Headers(headers)]) {
      const check = () => verify(given, Buffer.from(body), secret, recent ? {} : ever);
      if (error) assert.throws(check, (thrown) => thrown.message.includes(error) && thrown.name === (/secret: use/.test(error) ? "TypeError" : "SignatureError"), name);
      else assert.equal(check(), table.headers["webhook-id"], name);
    }
  }
  const { headers, body, secret } = table;
  assert.throws(() => verify(headers, JSON.parse(body), secret), /^TypeError: verify: the body is of type object: give the bytes/);
});

test("the words of failures", () => {
  const failed = (reason, exit_code) => new TaskFailed(new Task({ id: "a", status: "failed", reason, error: { message: "m", exit_code } })).message;
  assert.deepEqual([failed("error", 65), failed("error", 1), failed("timeout")], ["task a failed (fatal): m", "task a failed (error): m", "task a failed (timeout): m"]);
  assert.throws(() => new Client("127.0.0.1:9465"), /^TypeError: the URL of the server "127.0.0.1:9465": use one like /);
});

test("why a task has not ended, or failed", async () => {
  const reason = async (handle) => { // a slow machine may not answer within the time
    for (;;) {
      const error = await handle.wait({ timeout: 500 }).catch((error) => error);
      assert.ok(error instanceof WaitTimeout, error);
      if (!error.message.startsWith("no answer")) return error.message;
    }
  };
  const queue = client.queue("js-idle");
  const pending = await queue.add("x");
  assert.match(await reason(pending), /is pending after 500 ms: no host serves the queue js-idle$/);
  assert.match(await reason(await queue.add("x", { delay: 3_600_000 })), /is scheduled after 500 ms: it is due in 3(600|59\d) s$/);
  assert.match(await reason(await queue.add("x", { after: [pending.id] })), /is scheduled after 500 ms: it waits for 1 task$/);
  const failing = await client.enqueue("echo", "", { maxAttempts: 1, delay: 100 });
  const next = await client.enqueue("echo", "x", { after: [failing.id] });
  const { task } = await failing.wait(wait).catch((error) => error);
  const error = await next.wait(wait).catch((error) => error);
  assert.ok(error instanceof TaskFailed && error.message.endsWith(`: echo: ${task.error.message.split("\n")[0]}`), error.message);
  const last = await (await client.enqueue("echo", "x", { after: [next.id] })).wait(wait).catch((error) => error);
  assert.ok(last.message.endsWith(`: echo: ${task.error.message.split("\n")[0]}`), last.message);
  assert.throws(() => failing.waitUntilFinished(), /^TypeError: there is no waitUntilFinished: use wait\(\{ timeout \}\), /);
  assert.throws(() => queue.getJob(failing.id), /^TypeError: there is no getJob: use client.task\(id\)$/);
});

test("what is refused here", async () => {
  for (const [options, error] of [
    [{ backoff: { type: "exponential", delay: 1000 } }, 'use backoff: "exponential", backoffBase: 1000'], [{ jobId: "a" }, 'unknown option "jobId": use id'],
    [{ Delay: 5 }, 'unknown option "Delay": use delay'], [{ zzz: 1 }, 'unknown option "zzz": use after, at, '], [{ after: 7 }, 'after 7: use a list of handles or IDs'],
    [{ labels: { a: 1 } }, 'labels {"a":1}: use an object whose values are strings'], [{ key: 5 }, "key 5: use a string"], [{ jitter: "no" }, 'jitter "no": use true or false'],
    [{ unique: { ttl: 5000 } }, "unique.ttl: unique has key and duration"], [{ unique: { duration: 5 } }, "unique.duration 5: use milliseconds, 1000 or more"],
    [{ lifo: true }, 'unknown option "lifo": use a higher priority'], [{ delay: -1 }, "delay -1: use 0 or more milliseconds"],
    [{ maxAttempts: 0 }, "maxAttempts 0: use 1 or more"], [{ data: 1 }, 'unknown option "data": use parameters: { parameters, ...options }'],
    [{ opts: {} }, 'unknown option "opts": write the options beside parameters'],
    [{ when: "all" }, 'when "all": use "complete" or "ended" or "any" or "failed"'],
  ]) await assert.rejects(client.enqueue("unserved", "x", options), (e) => e instanceof TypeError && e.message.includes(error), error);
  const echo = client.queue("echo");
  await assert.rejects(echo.add("total", { items: [1] }), /^TypeError: add\("total", \{ items \}\): items is no option, .* use add\(\{ items \}, options\), /);
  await assert.rejects(echo.add("total", { dely: 1 }), /^TypeError: unknown option "dely": use delay$/);
  await assert.rejects(echo.addBulk([{ name: "total", data: {} }]), /^TypeError: unknown option "name": leave it out/);
  assert.throws(() => echo.process(() => 1), /^TypeError: there is no process: use a plugin, whose handler runs the tasks: quern plugin new NAME/);
  assert.throws(() => new Queue("mail", { connection: {} }), /^TypeError: new Queue\("mail"\): use new Client\(url, \{ token \}\)\.queue\("mail"\)$/);
  for (const [options, error] of [
    [5000, /^TypeError: wait\(5000\): wait takes \{ timeout: 5000 \}$/], [{ timout: 1000 }, /^TypeError: wait: unknown option "timout": wait takes \{ timeout: 1000 \}/],
    [{ timeout: "1" }, /^TypeError: wait: timeout "1": use milliseconds/], [null, /^TypeError: wait\(null\): wait takes \{ timeout: 1000 \}$/],
    [{ signal: 1 }, /^TypeError: wait: signal 1: use that of an AbortController$/],
  ]) await assert.rejects(client.wait("x", options), error);
  const handle = await client.enqueue("unserved", "x");
  for (const [call, error] of [
    [() => handle.wait(wait, 1), /^TypeError: wait: 2 arguments: write wait\(\{ timeout: 1000 \}\)$/], [() => handle.cancel("now"), /^TypeError: cancel: 1 argument: write cancel\(\)$/],
    [() => echo.addBulk([], { delay: 1 }), /^TypeError: addBulk: 2 arguments: write addBulk\(/], [() => echo.add("x", 60), /^TypeError: add: options 60: use an object/],
    [() => client.enqueue("echo", "x", "now"), /^TypeError: enqueue: options "now": use an object/], [() => client.publish("t", "x", { attribute: {} }), /^TypeError: unknown option "attribute": use attributes$/],
    [() => client.enqueue("echo", "x", {}, 1), /^TypeError: enqueue: 4 arguments: write enqueue\(queue, parameters, options\)$/],
  ]) await assert.rejects(call, error);
  for (const [call, error] of [
    [() => new Client(url, { tokn: "x" }), /^TypeError: unknown option "tokn": use token$/], [() => new Client(url, "x"), /^TypeError: new Client: options "x": use an object, such as \{ token: ... \}$/],
    [() => client.queue("echo", {}, 1), /^TypeError: queue: 3 arguments: write queue\(name, options\)$/],
  ]) assert.throws(call, error);
  for (const options of [{ delay: NaN }, { at: new Date(NaN) }, { timeout: null }, { priority: Infinity }, { unique: "" }]) {
    await assert.rejects(client.enqueue("unserved", "x", options), new RegExp("^TypeError: " + Object.keys(options)[0]));
  }
  const loop = { a: [] };
  loop.a.push(loop);
  let deep = [];
  for (let n = 0; n < 100_000; n++) deep = [deep];
  for (const [parameters, says] of [
    [Promise.resolve(1), /^parameters is a Promise, .*: await it$/], [new Map(), /^parameters is a Map, .*: use Object.fromEntries$/],
    [() => 1, /^parameters is a function, /], [Symbol("x"), /^parameters is a symbol, /], [1n, /^parameters is a bigint, .*: use String$/],
    [{ items: [{ "a b": 1n }] }, /^parameters.items\[0\]\["a b"\] is a bigint, /], [{ a: new Set([1]) }, /^parameters.a is a Set, .*: use Array.from$/],
    [[NaN], /^parameters\[0\] is NaN, which JSON does not express: use null, or String$/], [Infinity, /^parameters is Infinity, /],
    [{ at: new Date(0), n: -Infinity }, /^parameters.n is -Infinity, /], [loop, /^parameters.a\[0\] contains itself, /],
    [deep, /^parameters has more than 900 values in each other/], ["a\ud800", /^parameters has half a surrogate pair, /],
    [{ a: "\udfff" }, /^parameters.a has half a surrogate pair, /],
  ]) {
    const refused = (error) => error instanceof TypeError && says.test(error.message);
    await assert.rejects(client.enqueue("unserved", parameters), refused, String(says));
    await assert.rejects(client.publish("js.orders", parameters), refused, String(says));
  }
  for (const parameters of [{ a: null, b: {}, c: "\\ud800 null", d: undefined, e: () => 1 }, [undefined, new Date(NaN)], "😀", ["😀"]]) {
    const task = await (await client.enqueue("unserved", parameters)).task();
    assert.equal(task.parameters, typeof parameters === "string" ? parameters : JSON.stringify(parameters));
  }
  for (const name of ["", ".", "..", undefined]) await assert.rejects(client.task(name), /use a text that is not empty/);
  assert.ok((await new Client(url, { token: token + "\n", tenant }).enqueue("unserved", "x")).id);
  assert.throws(() => new Client(url, { token: "a\nb" }), (error) => !error.message.includes("a\nb"));
  assert.throws(() => new Client("127.0.0.1:9465"), /use one like http:/);
  assert.throws(() => new Client("http://user:secret@127.0.0.1"), (error) => !error.message.includes("secret"));
});

test("strange answers", async () => {
  const answers = {
    html: [200, "<html>"], null: [200, "null"], list: [200, "[]"], object: [200, "{}"], items: [200, '{"items":[1]}'],
    types: [200, '{"id":[1],"queue":"q","topic":"t","status":"failed"}'], error: [200, '{"id":"x","queue":"q","status":"failed","error":"text"}'],
    odd: [400, '{"status":400,"type":null,"errors":[null]}'], redirect: [307, "", { Location: "/html/" }],
    busy: [503, "{}", { "Retry-After": "3600" }],
  };
  const server = createServer((request, response) => {
    const [status, body, headers] = answers[request.url.split("/")[1]];
    request.resume().on("end", () => response.writeHead(status, headers).end(body));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    for (const name of Object.keys(answers)) {
      const strange = new Client(`http://127.0.0.1:${server.address().port}/${name}`, { retries: 0 });
      const [status, body] = answers[name];
      for (const [asked, call] of [
        ["POST queues/q/tasks/batch", () => strange.enqueue("q", "x")], ["GET tasks/x", () => strange.task("x")],
        ["GET tasks/x", () => strange.wait("x")], ["POST topics/t/publications", () => strange.publish("t", "x")],
      ]) {
        const [method, path] = asked.split(" ");
        const came = (status === 200 ? "" : `HTTP status ${status}, `) + (body ? JSON.stringify(body) : "no body");
        const says = `${method} http://127.0.0.1:${server.address().port}/${name}/v1/tenants/blueque/${path} answered ${came}, which is not an answer of Quern's API: check the URL`;
        await assert.rejects(call(), (error) => error instanceof APIError && (name === "odd" || error.message === says), `${name}: ${says}`);
      }
    }
    await assert.rejects(new Client(`http://127.0.0.1:${server.address().port}/busy`).wait("x", { timeout: 500 }), APIError);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test("publish", async () => {
  const publish = () => client.publish("js.orders", { total: 1 }, { id: "js-p", attributes: { type: "new" } });
  assert.equal((await publish()).existed, false);
  assert.equal((await publish()).existed, true);
  const warnings = [], warn = console.warn;
  console.warn = (text) => warnings.push(text);
  try {
    for (let i = 0; i < 2; i++) {
      const { subscribers, dropped } = await client.publish("js.nobody", "x");
      assert.deepEqual([subscribers, dropped], [0, true]);
    }
  } finally {
    console.warn = warn;
  }
  assert.equal(warnings.length, 1);
  assert.match(warnings[0], /^quern: topic js\.nobody: no subscription matches, so the publication is dropped: add subscribe: /);
  const origin = { parent: "js-parent", traceparent: `00-${"1".repeat(32)}-${"2".repeat(16)}-01`, tracestate: "a=b" };
  assert.equal((await client.publish("js.orders", "x", origin)).existed, false);
});

// A proxy passes a request on, and then loses the first answer, and refuses the second request.
test("a lost answer", async () => {
  let asked = 0;
  const proxy = createServer(async (request, response) => {
    asked++;
    if (asked === 2) return response.writeHead(503, { "Retry-After": "0" }).end();
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    const { authorization, "content-type": type } = request.headers;
    const answer = await fetch(url + request.url, { method: "POST", body: Buffer.concat(chunks), headers: { authorization, "content-type": type } });
    const text = await answer.text();
    if (asked === 1) return request.socket.destroy();
    response.end(text);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  try {
    const handle = await new Client(`http://127.0.0.1:${proxy.address().port}`, { token, tenant }).enqueue("echo", "once");
    assert.deepEqual([asked, handle.existed], [3, false]);
    assert.equal((await client.wait(handle.id, wait)).text, "once");
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
});

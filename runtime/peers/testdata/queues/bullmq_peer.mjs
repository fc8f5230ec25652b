// BullMQ: `fill KIND N TEXT` enqueues, `wait N` prints when each task was done and one result, `work CONCURRENCY` and
// `sandboxed CONCURRENCY` run tasks until the process is ended. `enqueue KIND N TEXT PRODUCERS TOGETHER` prints the seconds that
// it took, and `idle N` the milliseconds from each call that enqueues until a worker has the task.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import run from "./tasks.mjs";

const { Queue, Worker } = createRequire(`${process.env.PEER_MODULES}/`)("bullmq");
const { hostname: host, port } = new URL(process.env.PEER_REDIS);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const [verb, ...rest] = process.argv.slice(2);

async function enqueue(queue, kind, count, data, producers, together) {
  let next = 0;
  const produce = async () => {
    while ((next += together) <= count) {
      if (together === 1) await queue.add(kind, data);
      else await queue.addBulk(Array.from({ length: together }, () => ({ name: kind, data })));
    }
  };
  const begun = performance.now();
  await Promise.all(Array.from({ length: producers }, produce));
  return (performance.now() - begun) / 1000;
}

const verbs = {
  async fill(queue, kind, count, text) {
    await enqueue(queue, kind, Number(count), text, 1, 10); // all counts are multiples of it
  },
  async wait(queue, count) {
    while ((await queue.getCompletedCount()) < Number(count)) await new Promise((done) => setTimeout(done, 250));
    const jobs = await queue.getCompleted(0, -1);
    return { finished: jobs.map((job) => job.finishedOn / 1000), output: jobs[0].returnvalue };
  },
  enqueue: (queue, kind, count, text, producers, together) => enqueue(queue, kind, Number(count), text, Number(producers), Number(together)),
  async idle(queue, count) {
    let started;
    const worker = new Worker("orders", async () => started(performance.now()), { connection });
    await worker.waitUntilReady();
    const waits = [];
    for (let i = 0; i <= Number(count); i++) {
      const start = new Promise((resolve) => (started = resolve));
      const begun = performance.now();
      await queue.add("empty", "");
      waits.push((await start) - begun);
    }
    await worker.close();
    return waits.slice(1);
  },
};
if (verbs[verb]) {
  const queue = new Queue("orders", { connection });
  console.log(JSON.stringify((await verbs[verb](queue, ...rest)) ?? null));
  await queue.close();
} else {
  const processor = verb === "sandboxed" ? fileURLToPath(new URL("tasks.mjs", import.meta.url)) : run;
  new Worker("orders", processor, { connection, concurrency: Number(rest[0]) });
}

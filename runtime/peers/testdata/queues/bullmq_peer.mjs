// BullMQ: `fill N ORDER` enqueues, `wait N` prints when each task was done and one result, `work CONCURRENCY` and
// `sandboxed CONCURRENCY` run tasks until the process is ended.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import order from "./order.mjs";

const { Queue, Worker } = createRequire(`${process.env.PEER_MODULES}/`)("bullmq");
const { hostname: host, port } = new URL(process.env.PEER_REDIS);
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const [verb, count, text] = process.argv.slice(2);

const verbs = {
  async fill(queue) {
    const jobs = Array.from({ length: Number(count) }, () => ({ name: "order", data: text }));
    while (jobs.length > 0) await queue.addBulk(jobs.splice(0, 1000));
    await queue.close();
  },
  async wait(queue) {
    while ((await queue.getCompletedCount()) < Number(count)) await new Promise((done) => setTimeout(done, 250));
    const jobs = await queue.getCompleted(0, -1);
    console.log(JSON.stringify({ finished: jobs.map((job) => job.finishedOn / 1000), output: jobs[0].returnvalue }));
    await queue.close();
  },
};
if (verbs[verb]) await verbs[verb](new Queue("orders", { connection }));
else {
  const processor = verb === "sandboxed" ? fileURLToPath(new URL("order.mjs", import.meta.url)) : order;
  new Worker("orders", processor, { connection, concurrency: Number(count) });
}

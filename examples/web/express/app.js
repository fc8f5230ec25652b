// A web application that makes receipts: a request enqueues a task, and does not wait for it.
import express from "express";
import { APIError, Client, NoTaskError } from "@quern/client";

const { QUERN_SERVER = "http://127.0.0.1:9465", QUERN_TOKEN, QUERN_TENANT, PORT = 3000 } = process.env;

// The timeouts are those of somebody who waits at a browser.
const client = new Client(QUERN_SERVER, { token: QUERN_TOKEN, tenant: QUERN_TENANT, timeout: 5000, retries: 2 });
const receipts = client.queue("receipt", { maxAttempts: 3, timeout: 30_000 });

const app = express();
app.use(express.json());

app.post("/receipts", async (request, response) => {
  const { number, customer, lines } = request.body ?? {};
  if (typeof number !== "string" || typeof customer !== "string" || !Array.isArray(lines)) {
    return response.status(422).json({ detail: "send an order: {number, customer, lines}" });
  }
  const { id } = await receipts.add({ number, customer, lines });
  response.status(202).location(`/receipts/${id}`).json({ id, status: "pending" });
});

app.get("/receipts/:id", async (request, response) => {
  const { id, status, error } = await receipt(request.params.id);
  response.json({
    id, status,
    ...(status === "failed" && { error: error.message }),
    ...(status === "complete" && { page: `/receipts/${id}/page` }),
  });
});

app.get("/receipts/:id/page", async (request, response) => {
  const task = await receipt(request.params.id);
  if (task.status !== "complete") return response.status(409).json({ detail: `the receipt is ${task.status}` });
  response.type("html").send(task.text);
});

// receipt returns the task, if it makes a receipt: the IDs of other tasks show nothing here.
async function receipt(id) {
  const task = /^[\w-]+$/.test(id) && (await client.task(id));
  if (task?.queue !== "receipt") throw new NoTaskError(404, "no-task", "no such receipt");
  return task;
}

app.use((error, request, response, next) => {
  if (response.headersSent) return next(error);
  if (error instanceof NoTaskError) return response.status(404).json({ detail: "no such receipt" });
  if (!(error instanceof APIError)) return next(error);
  console.error(`${request.method} ${request.path}: ${error.message}`);
  response.status(503).set("Retry-After", "5").json({ detail: "try again later" });
});

const server = app.listen(Number(PORT), "127.0.0.1", (error) => {
  if (error) throw error;
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});

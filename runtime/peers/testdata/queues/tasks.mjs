// What BullMQ does with a task, in process and sandboxed, where this file is the processor.
export default async function (job) {
  if (job.name === "empty") return "";
  const order = JSON.parse(job.data);
  order.total = order.weight = 0;
  for (const line of order.lines) {
    order.total += line.quantity * line.price;
    for (const weight of line.weights) order.weight += line.quantity * weight;
  }
  return JSON.stringify(order);
}

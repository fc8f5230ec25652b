import { check } from "./ink";

interface Order {
  name: string;
}

type Greeting = `hello, ${string}`;

function greet(order: Order): Greeting {
  check(order.name);
  return `hello, ${order.name}`;
}

export default function handle(task: { json(): unknown }): Greeting {
  const order = task.json() as Order;
  return greet(order);
}

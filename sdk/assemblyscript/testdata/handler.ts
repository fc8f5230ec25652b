// A handler with ways to end.
import { Bucket, config, Enqueue, Failure, fatal, Fields, Request, retry, run, secret, sleep, Task } from "@quern/assemblyscript";

const calls: string[] = []; // in the memory of this task, with that of the warm call
const greeting = config("greeting") || "Hello";

export function quern_handle(): i32 {
  return run(greet);
}

function greet(task: Task): string {
  const name = task.text;
  if (name == "") fatal("no name");
  if (name == "later") retry("not now", 1000);
  const names = name.split(" ");
  if (name == "index") return names[1];
  if (name == "throw") throw new Error("no ink");
  if (name == "refused") sleep(-1);
  if (name == "key") new Bucket("weather").set("Berlin", "rain");
  if (name == "secret") secret("token");
  if (name == "queue") new Enqueue("mail").send("");
  if (name == "url") new Request("GET", "https://ada:word@a.example/@path?key=secret#token").send();
  if (name == "handled") {
    const failure = new Failure();
    sleep(-1, failure);
    return failure.name + ": " + failure.reason;
  }
  if (name == "garbage") return garbage().toString();
  if (name.startsWith("http://")) return fetched(name);
  if (name == "described") {
    calls.push([task.id, task.tenant, task.previousError, task.attempt.toString()].join("/"));
    return calls.join(" ");
  }
  if (name == "quoted") return new Fields().text("text", '"'.repeat(1 << 16)).toString();
  if (name == "random") {
    trace("drawn", 1, 1.5);
    return Math.random().toString();
  }
  return greeting + ", " + name + "!";
}

// Makes texts that nothing keeps.
function garbage(): i32 {
  let size = 0;
  for (let i = 0; i < 100000; i++) size += ("text " + i.toString()).length;
  return size;
}

// Reads an answer: the header X-Text, the length of the text and its last letters.
function fetched(url: string): string {
  const answer = new Request("GET", url).send();
  const text = answer.text;
  return (answer.header("x-text") || "") + " " + text.length.toString() + " " + text.slice(-3);
}

// What all views of a tenant share: its queues, kept up to date by the stream of changes.

import { call, follow, path, query } from "./api.js";

const most = 1000; // as many as the stream follows

/** Live follows the queues of a tenant until signal ends, and calls changed at each change and break. */
export class Live {
  #queues = new Map();
  #filled = false;
  #more = false;

  constructor(tenant, signal, changed, refused) {
    this.tenant = tenant;
    this.signal = signal;
    const handle = (event, data) => {
      if (event === "queue") this.#queues.set(data.queue, data);
      if (event === "gone") this.#queues.delete(data.queue);
      if (event === "problem") this.#filled = false; // asking for the queues tells what is wrong
      if (event !== "ping") changed();
    };
    const lost = () => {
      this.#filled = false; // what went meanwhile is not told
      changed();
    };
    follow(path`/tenants/${tenant}/changes`, signal, handle, lost).catch(refused);
  }

  /** queues are all queues by name, and whether there are more of them than are followed. */
  async queues() {
    if (!this.#filled) {
      const list = await call(query(path`/tenants/${this.tenant}/queues`, { limit: most }), { signal: this.signal });
      this.#queues = new Map(list.items.map((queue) => [queue.queue, queue]));
      this.#more = Boolean(list.next);
      this.#filled = true;
    }
    const list = [...this.#queues.values()].sort((a, b) => (a.queue < b.queue ? -1 : 1));
    return { list, more: this.#more };
  }
}

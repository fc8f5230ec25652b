// The views of topics, publications and subscriptions, and what may be done to them.

import { acts, announce, arrive, ask, bulk, button, choice, field, lines, me, pairs, post, sent, text } from "./actions.js";
import { call, now, path, Problem, query } from "./api.js";
import { badge, clock, coded, count, facts, h, link, many, place, section, span, table } from "./dom.js";
import { bytesOf, viewer } from "./task.js";

const page = 50;

export function topics({ tenant }) {
  return {
    title: "Topics",
    load: async (signal) => {
      const [topics, subscriptions, off] = await Promise.all([
        call(path`/tenants/${tenant}/topics`, { signal }), call(query(path`/tenants/${tenant}/subscriptions`, { limit: 1000 }), { signal }), switchedOff(tenant, signal)]);
      return { topics: topics.items, subscriptions, off };
    },
    show: ({ topics, subscriptions, off }) => [
      acts(publish(tenant), change(tenant)),
      offTable(off),
      table("What was published", [
        { head: "Topic", cell: (t) => topicLink(tenant, t.topic) },
        { head: "Subscriptions", number: true, cell: (t) => count(t.subscriptions) },
        { head: "Active", number: true, cell: (t) => count(t.active) },
        { head: "Published", number: true, cell: (t) => count(t.published) },
        { head: "Dropped", number: true, cell: (t) => (t.dropped ? badge(count(t.dropped), "failed") : 0) },
        { head: "Tasks", number: true, cell: (t) => count(t.tasks) },
        { head: "Last", cell: (t) => clock(t.last_published) },
      ], topics, "Nothing was published, and nobody has subscribed."),
      section("Subscriptions", subscriptionTable(tenant, subscriptions.items, off)),
      subscriptions.error && h("p", { class: "wrong" }, subscriptions.error),
      subscriptions.next && h("p", { class: "faint" }, "These are the first 1,000 by name.")],
  };
}

const topicLink = (tenant, topic) => (topic.includes("*") ? topic : link(topic, tenant, "topics", topic));

const filterOf = (s) => [...lines(s.filter?.attributes), ...Object.entries(s.filter?.data ?? {}).map(([pointer, value]) => `${pointer}=${JSON.stringify(value)}`)];

const stateOf = (s) => (s.active ? badge("active", "complete") : [badge("paused"), " ", s.reason]);

const subscriptionTable = (tenant, list, off) => table("Subscriptions", [
  { head: "Subscription", cell: (s) => link(s.id, tenant, "subscriptions", s.id) },
  { head: "Topic", cell: (s) => topicLink(tenant, s.topic) },
  { head: "Filter", cell: (s) => filterOf(s).map((part) => h("div", null, part)) },
  { head: "Tasks go to", cell: (s) => link(s.queue, tenant, "queues", s.queue) },
  { head: "Webhook", cell: (s) => s.webhook && [s.webhook.url, isOff(s, off) && h("div", null, badge("switched off", "failed"))] },
  { head: "Plugin", cell: (s) => s.plugin },
  { head: "State", cell: stateOf },
], list);

/** switchedOff are the destinations of webhooks that listeners leave alone for a time, because they failed. */
const switchedOff = async (tenant, signal) => (await call(query(path`/tenants/${tenant}/nodes`, { leased: true, limit: 1000 }), { signal })).items
  .flatMap((node) => (node.destinations_off ?? []).map((off) => ({ ...off, listener: node.listener })));

const origin = (url) => (URL.canParse(url) ? new URL(url).origin : url);

const isOff = (s, off) => off.some((d) => origin(s.webhook.url) === origin(d.destination));

const offTable = (off) => off.length > 0 && section("Destinations that are switched off", table("Destinations of webhooks", [
  { head: "Destination", cell: (d) => d.destination },
  { head: "Why", cell: (d) => d.error },
  { head: "Failed in a row", number: true, cell: (d) => count(d.failures) },
  { head: "Tried again in", cell: (d) => span(Math.max(0, d.until - now())) },
  { head: "By", cell: (d) => d.listener },
], off), h("p", { class: "faint" }, "Their deliveries wait, and lose no attempt."));

export function topic({ tenant, search }, name) {
  const to = path`/tenants/${tenant}/topics/${name}`;
  const offset = Number(search.get("offset")) || 0;
  const older = (from, words) => h("a", { href: place(tenant, "topics", name, from ? { offset: from } : {}) }, words);
  return {
    title: `Topic ${name}`,
    load: async (signal) => {
      const [shape, list, off] = await Promise.all([
        call(to, { signal }), call(query(`${to}/publications`, { limit: page + 1, offset }), { signal }), switchedOff(tenant, signal)]);
      return { shape, list: list.items, off };
    },
    show: ({ shape: t, list, off }) => [
      acts(publish(tenant, t)),
      h("div", { class: "tiles" }, facts(
        ["Published", count(t.published)], ["Dropped", t.dropped && count(t.dropped)], ["Tasks", count(t.tasks)], ["Kept", count(t.kept)],
        ["Active subscriptions", `${count(t.active)} of ${count(t.subscriptions)}`])),
      section("Subscriptions", subscriptionTable(tenant, t.list ?? [], off)),
      section("Publications", table("Publications", [
        { head: "Publication", cell: (p) => link(h("span", { class: "code" }, p.id), tenant, "publications", p.id) },
        { head: "State", cell: publicationState },
        { head: "Created", cell: (p) => clock(p.created) },
        { head: "Subscribers", number: true, cell: (p) => count(p.subscribers) },
        { head: "Tasks", number: true, cell: (p) => count(p.tasks) },
      ], list.slice(0, page), "None is kept."),
      h("p", { class: "actions" }, offset > 0 && older(0, "Newest"), list.length > page && older(offset + page, "Older")))],
  };
}

const publicationState = (p) => [badge(p.state, { published: "complete", dropped: "failed" }[p.state] ?? "warning"), p.refused && ` ${count(p.refused)} refused`];

export function publication({ tenant }, id) {
  return {
    title: `Publication ${id}`,
    load: (signal) => call(path`/tenants/${tenant}/publications/${id}`, { signal }),
    show: (p) => [
      h("p", null, publicationState(p), " in ", link(p.topic, tenant, "topics", p.topic)),
      section("About it", facts(
        ["Created", clock(p.created)], ["Subscribers", count(p.subscribers)], ["Tasks", count(p.tasks)],
        ["Attributes", p.attributes && lines(p.attributes).map((pair) => h("div", null, pair))],
        ["Parent", p.parent && link(p.parent, tenant, "tasks", p.parent)], ["Trace", p.traceparent && h("span", { class: "code" }, p.traceparent)],
        ...Object.entries(p.summary ?? {}).map(([status, n]) => [`Tasks ${status}`, count(n)]))),
      section("What became of it", table("Tasks", [
        { head: "Subscription", cell: (t) => link(t.subscription, tenant, "subscriptions", t.subscription) },
        { head: "Task", cell: (t) => (t.status === "gone" ? t.id : link(h("span", { class: "code" }, t.id), tenant, "tasks", t.id)) },
        { head: "Queue", cell: (t) => t.queue && link(t.queue, tenant, "queues", t.queue) },
        { head: "Status", cell: (t) => [badge(t.status), " ", t.reason] },
      ], p.list ?? [], "No subscription matched.")),
      me.payloads ? section("Payload", !p.payload_size ? h("p", { class: "empty" }, "Empty.") : h("div", { class: "payload", "data-own": `payload-${id}-${p.payload_size}` },
        bytesOf(p, "payload") ? viewer(bytesOf(p, "payload"), "payload", id) : coded(`It has ${count(p.payload_size)} bytes: \`quern publication show\` has them.`)))
        : h("p", { class: "faint" }, "You may not see payloads and attributes.")],
  };
}

const statuses = ["", "scheduled", "pending", "started", "complete", "failed"];

export function subscription({ tenant, search }, id) {
  const to = path`/tenants/${tenant}/subscriptions/${id}`;
  const status = search.get("status") ?? "";
  return {
    title: `Subscription ${id}`,
    load: async (signal) => {
      const [shape, off] = await Promise.all([call(to, { signal }), switchedOff(tenant, signal)]);
      return { shape, off, list: shape.webhook ? (await call(query(`${to}/deliveries`, { status, limit: page }), { signal })).items : null };
    },
    show: ({ shape: s, off, list }) => [
      h("p", null, stateOf(s), s.webhook && isOff(s, off) && [" ", badge("its destination is switched off", "failed")]),
      subscriptionActions(tenant, s),
      section("About it", facts(
        ["Topic", topicLink(tenant, s.topic)], ["Filter", filterOf(s).map((part) => h("div", null, part))],
        ["Tasks go to", link(s.queue, tenant, "queues", s.queue)], ["Webhook", s.webhook && `${s.webhook.method ?? "POST"} ${s.webhook.url}`],
        ["Headers", lines(s.webhook?.headers).map((header) => h("div", null, header))], ["Signed with", s.webhook?.secrets?.join(", ")],
        ["Attempts", s.max_attempts && (s.max_attempts < 0 ? "unlimited" : count(s.max_attempts))],
        ["Time limit", (s.webhook?.timeout_seconds ?? s.timeout_seconds) && span(s.webhook?.timeout_seconds ?? s.timeout_seconds)],
        ["Priority", s.priority], ["Dead letters", s.dead && link(s.dead, tenant, "queues", s.dead)],
        ["Plugin", s.plugin], ["Without its plugin since", clock(s.absent)], ["Created", clock(s.created_at)], ["Changed", clock(s.updated_at)])),
      s.webhook && isOff(s, off) && offTable(off.filter((d) => isOff(s, [d]))),
      list && section("Deliveries",
        h("nav", { class: "actions", "aria-label": "Status" }, statuses.map((one) =>
          h("a", { href: place(tenant, "subscriptions", id, one ? { status: one } : {}), "aria-current": one === status && "page" }, one || "all"))),
        table("Deliveries", [
          { head: "Delivery", cell: (d) => link(h("span", { class: "code" }, d.id), tenant, "tasks", d.id) },
          { head: "Status", cell: (d) => badge(d.status) },
          { head: "Answer", number: true, cell: (d) => d.answer || "–" },
          { head: "Attempts", number: true, cell: (d) => count(d.attempts) },
          { head: "Created", cell: (d) => clock(d.created) },
          { head: "Next", cell: (d) => (d.status === "scheduled" ? clock(d.eta) : "") },
          { head: "Error", cell: (d) => d.error },
        ], list), list.length === page && h("p", null, link("All of the queue", tenant, "queues", s.queue)))],
  };
}

/**
 * replay delivers again what was published since a time, or counts it, in as many calls as it takes. An error ends it: what it says
 * then also tells how to go on.
 */
async function replay(tenant, id, since, dry) {
  let publications = 0;
  let tasks = 0;
  for (let from = since; from;) {
    const part = await post(query(path`/tenants/${tenant}/subscriptions/${id}/replay`, { since: from, dry_run: dry }))
      .catch((problem) => ({ publications: 0, until: from, error: { status: problem.status, detail: problem.message } }));
    publications += part.publications;
    tasks += part.tasks?.length ?? 0;
    if (part.error && publications === 0) throw new Problem(part.error.status, part.error.detail);
    if (part.error) return { publications, tasks, wrong: ` ${part.error.detail}: go on with \`quern subscription replay ${id} --since ${exactly(part.until)}\`.` };
    from = part.until !== from && part.until;
  }
  return { publications, tasks, wrong: "" };
}

/** exactly is a time with its microseconds. */
function exactly(seconds) {
  const micros = Math.round(seconds * 1e6);
  return new Date(Math.floor(micros / 1000)).toISOString().replace("Z", `${String(micros % 1000).padStart(3, "0")}Z`);
}

function subscriptionActions(tenant, s) {
  const to = path`/tenants/${tenant}/subscriptions/${s.id}`;
  return acts(
    s.active
      ? button("operator", "Pause", {
        title: `Pause ${s.id}?`, text: "What is published meanwhile makes no task for it. To lose none, pause its queue instead. Tasks that wait go on.",
        fields: field("Why, for others", { name: "reason", maxlength: 1024 }), run: ({ elements: { reason } }) => post(query(`${to}/pause`, { reason: reason.value })),
      })
      : button("operator", "Resume", { title: `Resume ${s.id}?`, text: "It gets what is published from now on. What was published before comes only with a replay.", run: () => post(`${to}/resume`) }),
    button("operator", "Replay", {
      title: `Deliver to ${s.id} again`, text: "What was published and matches is counted first.", verb: "Count",
      fields: choice("Published", "hours", [["1", "in the last hour"], ["6", "in the last 6 hours"], ["24", "in the last day"], ["168", "in the last week"]]),
      run: async ({ elements: { hours } }) => {
        const since = now() - 3600 * Number(hours.value);
        const { publications: n, wrong } = await replay(tenant, s.id, since, true);
        return () => (n === 0 ? announce("Nothing was published that matches it.") : ask({
          title: `Deliver ${many(n, "publication")} to ${s.id} again?`, text: `Each makes one task in ${s.queue}, the oldest first.${wrong}`,
          verb: `Deliver ${many(n, "publication")}`,
          run: async () => {
            const { tasks, wrong } = await replay(tenant, s.id, since, false);
            announce(`${many(tasks, "task")} enqueued in ${s.queue}.${wrong}`);
          },
        }));
      },
    }),
    s.webhook && button("operator", "Retry failed", () => bulk(tenant, "retry", { queue: s.queue, status: "failed" })),
    !s.plugin && change(tenant, s),
    button("admin", "Delete", {
      title: `Delete ${s.id}?`, text: `It gets no more tasks. Those that it has stay in ${s.queue}.`, verb: "Delete the subscription", danger: true,
      run: () => post(to, undefined, "DELETE").then(() => place(tenant, "topics")),
    }));
}

/** change is the button that makes a subscription, or changes one that there is: what the form does not show stays. */
const change = (tenant, s) => button("admin", s ? "Change" : "Make a subscription", {
  title: s ? `Change ${s.id}` : "Make a subscription", text: "Each publication that matches makes one task: in a queue, or as a delivery to a URL.",
  fields: [
    !s && field("Name", { name: "id", required: true, maxlength: 128 }),
    field("Topic, or a pattern with one *", { name: "topic", required: true, value: s?.topic }),
    field("Queue", { name: "queue", value: s?.queue }),
    field("Or the URL of a webhook", { name: "url", type: "url", value: s?.webhook?.url }),
    text("Only with these attributes, NAME=PATTERN, one a line", "attributes", lines(s?.filter?.attributes).join("\n"))],
  verb: s ? "Change it" : "Make it",
  run: ({ elements: given }) => {
    const id = s?.id ?? given.id.value;
    const url = given.url.value;
    const body = {
      ...s, topic: given.topic.value, queue: given.queue.value || undefined, webhook: url ? { ...s?.webhook, url } : undefined,
      filter: { ...s?.filter, attributes: pairs(given.attributes.value) },
    };
    return post(query(path`/tenants/${tenant}/subscriptions/${id}`, { only_new: !s }), body, "PUT").then(() => place(tenant, "subscriptions", id));
  },
});

/** publish is the button that publishes, to a topic or to one that is named. */
const publish = (tenant, t) => button("operator", "Publish", {
  title: t ? `Publish to ${t.topic}` : "Publish",
  text: t ? `It has ${many(t.active, "active subscription")}: each that matches gets one task.` : "Each active subscription that matches gets one task.",
  fields: [
    !t && field("Topic", { name: "topic", required: true, maxlength: 128 }),
    text("Payload", "payload"), text("Attributes, NAME=VALUE, one a line", "attributes"),
    field("ID, so that it is published once", { name: "id", maxlength: 128 })],
  verb: "Publish it",
  run: async ({ elements: given }, once) => {
    const to = query(path`/tenants/${tenant}/topics/${t?.topic ?? given.topic.value}/publications`, { id: given.id.value || once, attribute: lines(pairs(given.attributes.value)) });
    const { id, existed, subscribers, damaged } = await sent(to, given.payload.value);
    return arrive(place(tenant, "publications", id), existed ? "It was published before: nothing is published now." : `${many(subscribers, "subscriber")}${damaged ? `, and ${many(damaged, "subscription")} that cannot be read: see what is wrong` : ""}.`);
  },
});

// The view of a plugin's releases, and what can be done with them.

import { acts, button, field, may, post } from "./actions.js";
import { call, path } from "./api.js";
import { badge, clock, count, facts, h, link, many, section, size, span, table, version } from "./dom.js";
import { get } from "./views.js";

/** state is the word for a release, as `quern plugin releases` has it. */
const state = (r) => {
  if (r.serving) return r.frozen ? "frozen" : "serving";
  if (r.stage) return r.stage.halted ? "halted" : "canary";
  return r.rolled_back ? "rolled back" : "replaced";
};

/** step tells a step of a canary, and when it ends. */
const step = (s) => `${s.percent} %${s.seconds ? ` for ${span(s.seconds)}` : ""}${s.tasks ? `${s.seconds ? ", or" : ""} until ${many(s.tasks, "task")} have ended` : ""}`;

/** share tells which tasks a canary gets. */
function share({ share: { label, value, steps = [] }, step: at }) {
  if (label) return `tasks with the label ${label}=${value ?? ""}`;
  return `${step(steps[at] ?? steps.at(-1))}${steps.length > 1 ? ` (step ${at + 1} of ${steps.length})` : ""}`;
}

const percent = (m) => (m.runs ? `${((100 * m.failed) / m.runs).toFixed(1)} %` : "–");

/** failures tells the kinds of failures, if there are others than errors. */
const failures = (m) => Object.entries(m.failures ?? {}).map(([kind, n]) => `${kind}: ${count(n)}`).join(", ");

/** measures compares how tasks ended on a release and on the one beside it. */
const measures = (trial) => table("How tasks ended with their first run", [
  { head: "Release", cell: (m) => m.name },
  { head: "Tasks", number: true, cell: (m) => count(m.runs) },
  { head: "Failed", number: true, cell: (m) => count(m.failed) },
  { head: "Failure rate", number: true, cell: percent },
  { head: "Failures", cell: failures },
  { head: "Took p50", number: true, cell: (m) => (m.runs > m.failed ? span(m.took_p50) : "–") },
  { head: "Took p95", number: true, cell: (m) => (m.runs > m.failed ? span(m.took_p95) : "–") },
  { head: "Fuel p95", number: true, cell: (m) => count(m.fuel_p95) },
], [{ name: trial.release, ...trial.new }, trial.old.runs > 0 && { name: "beside it", ...trial.old }].filter(Boolean));

/** actions are the buttons of a release. */
function actions(to, plugin, r, serving) {
  const of = `release ${r.number} of ${plugin}`;
  const one = `${to}/releases/${r.number}`;
  const is = state(r);
  if (is === "canary") {
    return acts(
      button("admin", "Promote", { title: `Promote ${of}?`, text: `It serves all tasks, and replaces release ${serving}.`, verb: "Promote it", run: () => post(`${one}/promote`) }),
      button("admin", "Halt", {
        title: `Halt ${of}?`, text: `It gets no more tasks: release ${serving} serves all of them.`, verb: "Halt it", danger: true,
        fields: field("Reason", { name: "reason", required: true, maxlength: 1024 }), run: (form) => post(`${one}/halt`, { reason: form.elements.reason.value }),
      }));
  }
  if (r.serving) return null;
  return acts(
    button("admin", "Serve", {
      title: `Serve ${of}?`, text: `All hosts serve it in place of release ${serving}. A canary ends.${r.reason || r.stage?.halted ? " No host stops it again." : ""}`,
      verb: `Serve release ${r.number}`, danger: true, run: () => post(`${one}/serve`),
    }),
    button("admin", "Delete", { title: `Delete ${of}?`, text: "Its files go, for good. No host serves it.", verb: "Delete it", danger: true, run: () => call(one, { method: "DELETE" }) }));
}

/** freezing is the button that refuses pushes, or allows them again. */
const freezing = (to, plugin, frozen) => (frozen
  ? button("admin", "Allow pushes", { title: `Allow pushes of ${plugin}?`, text: "Another release may replace the one that serves.", verb: "Allow them", run: () => post(`${to}/thaw`) })
  : button("admin", "Freeze", { title: `Freeze ${plugin}?`, text: "Pushes are refused. An earlier release can still be served.", verb: "Freeze it", run: () => post(`${to}/freeze`) }));

/** rollback is the button that serves the newest good release before the one that serves. */
const rollback = (to, plugin, before) => before && button("admin", "Roll back", {
  title: `Roll back ${plugin}?`, text: `All hosts serve release ${before.number}${before.version ? ` (${before.version})` : ""} again. A canary ends.`,
  verb: `Serve release ${before.number}`, danger: true, run: () => post(`${to}/releases/${before.number}/serve`),
});

export function releases({ tenant }, plugin) {
  const to = path`/tenants/${tenant}/plugins/${plugin}`;
  return {
    title: `Plugin ${plugin}`,
    load: async (signal) => {
      const [{ items }, trial] = await Promise.all([get(`${to}/releases`, {}, signal), get(`${to}/trial`, {}, signal)]);
      return { items, trial };
    },
    show: ({ items, trial }) => {
      const serving = items.find((r) => r.serving);
      const canary = items.find((r) => state(r) === "canary");
      const tried = items.find((r) => r.number === trial.release);
      const before = serving && items.find((r) => r.number < serving.number && state(r) === "replaced");
      const stopped = items.filter((r) => r.reason || r.stage?.halted).at(0);
      return [
        h("p", null, link("All plugins", tenant, "plugins")),
        stopped && h("p", { class: stopped === items[0] ? "wrong" : "faint" }, `Release ${stopped.number} was stopped `, clock(stopped.stage?.halted || stopped.rolled_back), `: ${stopped.reason || stopped.stage.reason}`),
        serving && facts(["Serves", `${serving.number}${serving.version ? ` (${serving.version})` : ""}`], ["Frozen", clock(serving.frozen)], ["Canary", canary && `${canary.number}${canary.version ? ` (${canary.version})` : ""}`],
          ["Its share", canary && share(canary.stage)], ["Step since", canary && clock(canary.stage.since)]),
        serving && may("admin") && acts(rollback(to, plugin, before), freezing(to, plugin, serving.frozen)),
        tried && trial.new.runs > 0 && section(canary ? "Canary" : "Last trial", measures(trial)),
        section("Releases", table("The releases that are kept", [
          { head: "Release", number: true, cell: (r) => r.number },
          { head: "Version", cell: (r) => [r.version, h("div", { class: "code faint" }, version(r.files[0].digest))] },
          { head: "State", cell: (r) => badge(state(r)) },
          { head: "Pushed", cell: (r) => clock(r.created) },
          { head: "By", cell: (r) => r.by },
          { head: "Note", cell: (r) => r.note },
          { head: "Size", number: true, cell: (r) => size(r.files.reduce((sum, f) => sum + f.size, 0)) },
          { head: "Reason", cell: (r) => r.reason || r.stage?.reason },
          may("admin") && { head: "Action", cell: (r) => actions(to, plugin, r, serving?.number) },
        ].filter(Boolean), items, "No releases: hosts serve this plugin from their plugin directories. `quern plugin push` makes one."))];
    },
  };
}

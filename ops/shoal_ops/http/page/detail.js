// One queue or key in a dialog: where it lies, what it holds, its bindings or members.

import { get, inPath } from "./api.js";
import { bytes, count, duration, element, exact } from "./format.js";

const LIMIT = 50;

export class Detail {
  constructor() {
    this.dialog = document.getElementById("detail");
    this.dialog.addEventListener("click", (event) => { if (event.target === this.dialog) this.dialog.close(); });
  }

  async open(what, item) {
    const path = `/v1/${what}s/${inPath(item, what)}`;
    this.body = element("div", { class: "body" }, element("p", { class: "quiet" }, "Asking the cluster"));
    this.dialog.replaceChildren(
      element("div", { class: "head" },
        element("h2", { id: "detail-title" }, element("span", { class: "kind" }, what), item[what]),
        element("button", { class: "icon close", type: "button", "aria-label": "Close", onclick: () => this.dialog.close() }, "×")),
      this.body);
    if (!this.dialog.open) this.dialog.showModal();
    try {
      const found = await get(path);
      this.body.replaceChildren(what === "queue" ? queueFacts(found) : keyFacts(found));
      await (what === "queue" ? this.bindings(path) : this.members(path));
    } catch (error) {
      this.body.append(element("p", { class: "problem" }, error.message));
    }
  }

  async bindings(path) {
    const rows = element("tbody");
    const names = ["Key", "Slice", "Cursor", "Head", "Backlog"];
    const head = element("tr", {}, ...names.map((name, index) => element("th", { class: index > 1 ? "number" : "" }, name)));
    this.body.append(element("h3", {}, "Bindings"), element("div", { class: "scroll" }, element("table", {}, element("thead", {}, head), rows)));
    await this.pages(`${path}/bindings`, (found) => {
      for (const one of found.bindings) {
        rows.append(element("tr", {},
          element("td", {}, element("button", { class: "link", type: "button", onclick: () => this.open("key", one) }, one.key), one.end ? element("span", { class: "quiet" }, " ended") : null),
          element("td", {}, one.slice),
          ...[one.cursor, one.head, one.messages].map((value) => element("td", { class: "number" }, exact(value)))));
      }
      if (!rows.children.length) rows.append(element("tr", {}, element("td", { colspan: 5, class: "quiet" }, "Bound to no key but its own")));
    });
  }

  async members(path) {
    const list = element("ul", { class: "names" });
    this.body.append(element("h3", {}, "Bound queues"), list);
    await this.pages(`${path}/members`, (found) => {
      for (const one of found.queues) {
        list.append(element("li", {}, element("button", { type: "button", onclick: () => this.open("queue", one) }, element("span", { class: "text" }, one.queue))));
      }
      if (!list.children.length) list.append(element("li", { class: "quiet none" }, "No queue is bound"));
    });
  }

  async pages(path, show) {
    const body = this.body;
    const load = async (after) => {
      const found = await get(`${path}?${new URLSearchParams({ after, limit: LIMIT })}`);
      body.querySelector(":scope > .more")?.remove();
      show(found);
      if (found.next) body.append(element("button", { class: "more", type: "button", onclick: () => load(found.next) }, "More"));
    };
    await load("");
  }
}

function facts(rows) {
  const list = element("dl", { class: "facts wide" });
  for (const [name, value] of rows) list.append(element("dt", {}, name), element("dd", {}, value));
  return list;
}

function queueFacts(found) {
  return facts([
    ["Backlog", found.messages ? `${exact(found.messages)} ${found.messages === 1 ? "message" : "messages"}, ${bytes(found.body_bytes)}` : "none"],
    ["Oldest", found.oldest_ms ? `${duration(Math.max(0, (Date.now() - found.oldest_ms) / 1000))} old` : "none"],
    ["Bindings", exact(found.bindings)],
    ["Consumed by", consumers(found)],
    ["Unacked", exact(found.unacked)],
    ["Lives", found.options.expires_after_s ? `${duration(found.options.expires_after_s)} without a consumer` : "until dropped"],
    ["Consumers", found.options.exclusive === "none" ? "any number" : `one, the ${found.options.exclusive}`],
    ["Farewell", found.farewell ? farewell(found.farewell) : "none"],
    ["Home", found.home],
  ]);
}

function consumers(found) {
  if (!found.attached_sessions) return found.consumed ? "pulls: messages of it are out" : "no session now";
  return `${count(found.attached_sessions)} ${found.attached_sessions === 1 ? "session" : "sessions"}`;
}

function farewell(kept) {
  const due = kept.due_ms ? `, due in ${duration(Math.max(0, (kept.due_ms - Date.now()) / 1000))}` : "";
  return `to ${kept.key}, ${duration(kept.after_s)} after the last session has left${due}`;
}

function keyFacts(found) {
  if (!found.exists) return element("p", { class: "quiet" }, `Keeps nothing now. Partition ${found.partition} of slice ${found.slice}.`);
  return facts([
    ["Slice", found.slice],
    ["Partition", exact(found.partition)],
    ["Bound queues", exact(found.queues)],
    ["Next offset", exact(found.head)],
    ["Messages kept", `${exact(found.head - found.low)}, ${bytes(found.body_bytes)}`],
  ]);
}

// Search by the beginning of a name: queues and keys side by side, page by page.

import { get } from "./api.js";
import { count, element } from "./format.js";

const PAUSE_MS = 200;
const LIMIT = 20;

export class Search {
  /** `open(what, item)` shows one; `failed(error)` is told what went wrong. */
  constructor(open, failed) {
    this.open = open;
    this.failed = failed;
    this.words = document.getElementById("words");
    this.place = document.getElementById("found");
    this.words.addEventListener("input", () => this.later());
    document.getElementById("find").addEventListener("submit", (event) => { event.preventDefault(); this.now(); });
    document.addEventListener("keydown", (event) => {
      if (event.key === "/" && document.activeElement?.tagName !== "INPUT") { event.preventDefault(); this.words.focus(); }
      if (event.key === "Escape" && document.activeElement === this.words) { this.words.value = ""; this.now(); }
    });
  }

  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.now(), PAUSE_MS);
  }

  async now() {
    clearTimeout(this.timer);
    this.asking?.abort();
    const prefix = this.words.value;
    this.place.hidden = !prefix;
    if (!prefix) return;
    this.asking = new AbortController();
    await Promise.all([
      this.list("queue", document.getElementById("found-queues"), prefix, "", this.asking.signal),
      this.list("key", document.getElementById("found-keys"), prefix, "", this.asking.signal),
    ]);
  }

  async list(what, place, prefix, after, signal) {
    try {
      const asked = new URLSearchParams({ prefix, after, limit: LIMIT });
      const found = await get(`/v1/${what}s?${asked}`, signal);
      const rows = found[`${what}s`].map((item) => this.row(what, item));
      if (!after) place.replaceChildren();
      place.querySelector(".more")?.remove();
      place.append(...rows);
      if (found.next) place.append(this.more(what, place, prefix, found.next, signal));
      if (!place.children.length) place.append(element("li", { class: "quiet none" }, `No ${what} begins with “${prefix}”`));
    } catch (error) {
      if (error.name !== "AbortError") {
        place.replaceChildren(element("li", { class: "problem" }, error.message));
        this.failed(error);
      }
    }
  }

  row(what, item) {
    const badge = what === "key" ? element("span", { class: "quiet" }, `${count(item.queues)} bound`) : null;
    return element("li", {}, element("button", { type: "button", onclick: () => this.open(what, item) }, element("span", { class: "text" }, item[what]), badge));
  }

  more(what, place, prefix, next, signal) {
    return element("li", { class: "more" }, element("button", { type: "button", onclick: () => this.list(what, place, prefix, next, signal) }, "More"));
  }
}

// The cluster at a glance: tiles, the strip of partitions, a card for each slice. Elements are kept and refilled.

import { sparkline } from "./charts.js";
import { bytes, count, duration, element, exact } from "./format.js";

const sum = (slices, read) => slices.reduce((total, slice) => total + (slice.figures ? read(slice.figures) : 0), 0);

/** Sums one history over the slices, sample by sample; null where no slice answered. */
export function together(slices, name, length) {
  return Array.from({ length }, (_, index) => {
    const known = slices.map((slice) => slice.history[name][index]).filter((value) => value !== null && value !== undefined);
    return known.length ? known.reduce((total, value) => total + value, 0) : null;
  });
}

export function showTiles(place, found, histories) {
  const changes = found.rates.binds + found.rates.unbinds;
  const slices = found.slices;
  const kept = sum(slices, (figures) => figures.messages);
  const tiles = [
    ["Publishes", count(found.rates.publishes), "/s", histories.publishes, "one"],
    ["Deliveries", count(found.rates.deliveries), "/s", histories.deliveries, "two"],
    ["Binds and unbinds", count(changes), "/s", histories.changes, "three"],
    ["Memberships", count(sum(slices, (figures) => figures.bindings)), "", null, "", `${count(sum(slices, (figures) => figures.keys))} keys`],
    ["Messages kept", count(kept), "", histories.messages, "four"],
    ["Memory", bytes(sum(slices, (figures) => figures.resident_bytes)), "", null, "", `${bytes(sum(slices, (figures) => figures.disk_bytes))} on disk`],
  ];
  place.replaceChildren(...tiles.map(([name, value, unit, history, colour, more]) =>
    element("div", { class: "card tile" },
      element("span", { class: "name" }, name),
      element("span", { class: "value" }, value, unit ? element("small", {}, unit) : null),
      history ? sparkline(history, colour, `${name}, the last five minutes`) : element("span", { class: "quiet more" }, more))));
}

export function showStrip(strip, counter, runs, total, names) {
  strip.setAttribute("viewBox", `0 0 ${total} 1`);
  strip.replaceChildren(...runs.map((run) => {
    const rect = element("rect", { x: run.first, y: 0, width: run.last - run.first + 1, height: 1, class: `owner${names.indexOf(run.slice) % 8}` });
    rect.append(element("title", {}, `${run.slice}: partitions ${run.first} to ${run.last}`));
    return rect;
  }));
  counter.textContent = `${exact(total)} over ${names.length} ${names.length === 1 ? "slice" : "slices"}`;
}

export function showSlices(place, found) {
  const total = found.partitions || 1;
  place.replaceChildren(...found.slices.map((slice, index) => card(slice, index, total)));
}

function card(slice, index, total) {
  const figures = slice.figures;
  const level = !figures ? "bad" : slice.trouble ? "warn" : "good";
  const head = element("div", { class: "head" },
    element("h3", {}, element("i", { class: `owner${index % 8}` }), slice.slice),
    element("span", { class: "pill", "data-level": level }, element("span", { class: "dot" }), slice.trouble ? "trouble" : figures ? "serving" : "silent"));
  const where = element("p", { class: "quiet where" }, slice.address || "no leader", ` · epoch ${slice.epoch}`, figures ? ` · up ${duration(figures.uptime_s)}` : "");
  const share = element("p", { class: "share" }, element("b", {}, exact(slice.partitions)), ` partitions, ${Math.round((100 * slice.partitions) / total)} %`);
  const made = element("article", { class: slice.trouble ? "card slice troubled" : "card slice", "data-slice": slice.slice }, head, where, share);
  if (!figures) {
    made.append(element("p", { class: "problem" }, slice.problem));
    return made;
  }
  if (slice.trouble) made.append(element("p", { class: "trouble" }, slice.trouble));
  const rates = element("div", { class: "rates" });
  for (const [label, name, value, colour] of [
    ["publishes", "publishes", slice.rates.publishes, "one"],
    ["deliveries", "deliveries", slice.rates.deliveries, "two"],
    ["changes", "changes", slice.rates.binds + slice.rates.unbinds, "three"],
  ]) {
    rates.append(element("div", {},
      element("span", { class: "quiet" }, label),
      element("span", { class: "rate" }, count(value), element("small", {}, "/s")),
      sparkline(slice.history[name], colour, `${label} of ${slice.slice}`)));
  }
  const facts = element("dl", { class: "facts" });
  const tell = (name, value, title) => facts.append(element("dt", {}, name), element("dd", { title }, value));
  tell("Memberships", count(figures.bindings), exact(figures.bindings));
  tell("Keys", count(figures.keys), exact(figures.keys));
  tell("Queues", count(figures.queues), `${exact(figures.queues)}, those with a part here; ${exact(figures.attached_queues)} consumed now`);
  tell("Messages kept", count(figures.messages), `${exact(figures.messages)}, ${bytes(figures.body_bytes)}`);
  tell("Checkpoint lag", `${count(figures.checkpoint_lag)} rec.`, `${exact(figures.checkpoint_lag)} records since the checkpoint ${duration(figures.checkpoint_age_s)} ago`);
  tell("Memory", bytes(figures.resident_bytes), `${bytes(figures.disk_bytes)} on disk, journal ${bytes(figures.journal_bytes)}`);
  made.append(rates, facts);
  return made;
}

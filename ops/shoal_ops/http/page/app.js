// The page: asks for the overview at a steady pace, shows it, and says plainly how things stand.

import { get, Problem, token } from "./api.js";
import { RatesChart, SERIES } from "./charts.js";
import { Detail } from "./detail.js";
import { showSlices, showStrip, showTiles, together } from "./glance.js";
import { Search } from "./search.js";

const SAMPLES_MAX = 151;
const RETRY_MS = 2000;
const at = (id) => document.getElementById(id);

const chart = new RatesChart(at("plot"), at("legend"));
const detail = new Detail();
new Search((what, item) => detail.open(what, item), failed);
let known = null;
let mapVersion = -1;
let timer = 0;

function say(level, words) {
  at("state").dataset.level = level;
  at("state").querySelector(".words").textContent = words;
}

function failed(error) {
  if (error instanceof Problem && error.status === 401) askForToken(token.get() ? "That is not the token." : "");
}

function askForToken(problem) {
  clearTimeout(timer);
  token.forget();
  say("wait", "Token needed");
  at("ask").hidden = false;
  at("cluster").hidden = at("waiting").hidden = at("found").hidden = at("find").hidden = at("forget").hidden = at("links").hidden = true;
  at("token-problem").hidden = !problem;
  at("token-problem").textContent = problem;
  at("token").focus();
}

/** Joins what came to what is known: only the newest samples are asked for again. */
function join(found) {
  const old = known;
  if (old && old.slices.map((one) => one.slice).join() === found.slices.map((one) => one.slice).join()) {
    const first = found.times_ms[0];
    const kept = old.times_ms.filter((time) => time < first).length;
    const from = Math.max(0, kept + found.times_ms.length - SAMPLES_MAX);
    found.times_ms = [...old.times_ms.slice(from, kept), ...found.times_ms];
    found.slices.forEach((slice, index) => {
      for (const name of Object.keys(slice.history)) {
        slice.history[name] = [...old.slices[index].history[name].slice(from, kept), ...slice.history[name]];
      }
    });
  }
  known = found;
}

function show() {
  const length = known.times_ms.length;
  const histories = {};
  for (const name of ["publishes", "deliveries", "changes", "messages"]) histories[name] = together(known.slices, name, length);
  at("ask").hidden = at("waiting").hidden = true;
  at("cluster").hidden = at("find").hidden = false;
  at("forget").hidden = !token.get();
  at("links").hidden = Boolean(token.get());  // A link cannot carry the token.
  showTiles(at("tiles"), known, histories);
  chart.show(known.times_ms, SERIES.map((series) => histories[series.name]));
  showSlices(at("slices"), known);
  const silent = known.slices.filter((slice) => slice.state !== "serving").length;
  const troubled = known.slices.filter((slice) => slice.trouble).length;
  const trouble = troubled === 1 ? "has trouble" : "have trouble";
  if (known.problem) say("bad", "No redirector answers");
  else if (silent) say("bad", `${silent} of ${known.slices.length} slices silent${troubled ? `, ${troubled} ${trouble}` : ""}`);
  else if (troubled) say("warn", known.slices.length === 1 ? "The slice has trouble" : `${troubled} of ${known.slices.length} slices ${trouble}`);
  else if (known.map_age_ms) say("warn", "The redirector has lost etcd");
  else say("good", known.slices.length === 1 ? "The slice serves" : `All ${known.slices.length} slices serve`);
}

async function look() {
  clearTimeout(timer);
  let pauseMs = RETRY_MS;
  try {
    const found = await get(`/v1/overview?samples=${known ? 5 : SAMPLES_MAX}`);
    pauseMs = found.every_s * 1000;
    join(found);
    if (found.map_version !== mapVersion) {
      const { partitions, runs } = await get("/v1/partitions");
      showStrip(at("strip"), at("partition-count"), runs, partitions, found.slices.map((one) => one.slice));
      mapVersion = found.map_version;
    }
    show();
  } catch (error) {
    if (error instanceof Problem && error.status === 401) { failed(error); return; }
    say("bad", error instanceof Problem ? error.message : "Reconnecting");
    if (!known) at("waiting").querySelector("p").textContent = "The gateway does not answer. Trying again.";
  }
  timer = setTimeout(look, document.hidden ? 5 * pauseMs : pauseMs);
}

at("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(at("token").value.trim());
  at("token").value = "";
  look();
});
at("forget").addEventListener("click", () => { known = null; askForToken(""); });
document.addEventListener("visibilitychange", () => { if (!document.hidden && at("ask").hidden) look(); });
look();

// Sparklines (SVG) and the one large chart (uPlot).

import { count, element } from "./format.js";

const WIDTH = 120;
const HEIGHT = 32;

/** Values oldest first; null where there is none. Drawn from zero. */
export function sparkline(values, colour, label) {
  const svg = element("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label, class: "spark" });
  const top = Math.max(...values.map((value) => value || 0), 1e-9);
  const step = WIDTH / Math.max(values.length - 1, 1);
  const runs = [[]];
  values.forEach((value, index) => {
    if (value === null) runs.push([]);
    else runs[runs.length - 1].push([index * step, HEIGHT - 2 - (value / top) * (HEIGHT - 5)]);
  });
  for (const run of runs) {
    if (run.length < 2) continue;
    const line = run.map(([x, y]) => `${x.toFixed(1)} ${y.toFixed(1)}`).join(" L");
    const [from, to] = [run[0][0], run[run.length - 1][0]];
    svg.append(element("path", { d: `M${line} L${to.toFixed(1)} ${HEIGHT} L${from.toFixed(1)} ${HEIGHT} Z`, class: `fill ${colour}` }));
    svg.append(element("path", { d: `M${line}`, class: `line ${colour}`, "vector-effect": "non-scaling-stroke" }));
  }
  return svg;
}

export const SERIES = [
  { name: "publishes", label: "Publishes", colour: "one" },
  { name: "deliveries", label: "Deliveries", colour: "two" },
  { name: "changes", label: "Binds and unbinds", colour: "three" },
];

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The rates of the whole cluster, in a place that may change its width and theme. */
export class RatesChart {
  constructor(place, legend) {
    this.place = place;
    this.values = SERIES.map((series) => element("b", {}, "0"));
    legend.replaceChildren(...SERIES.map((series, index) =>
      element("li", {}, element("i", { class: series.colour }), `${series.label} `, this.values[index], " /s")));
    this.data = [[], [], [], []];
    document.addEventListener("themechange", () => this.build());
    new ResizeObserver(() => this.resize()).observe(place);
  }

  build() {
    if (!this.place.clientWidth) return;
    this.plot?.destroy();
    const axis = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    this.plot = new uPlot({
      width: this.place.clientWidth,
      height: 220,
      legend: { show: false },
      cursor: { y: false, points: { size: 7 } },
      padding: [8, 28, 0, 0],
      scales: { y: { range: (_, low, high) => [0, Math.max(high * 1.1, 1)] } },
      axes: [
        { ...axis, values: (_, times) => times.map((time) => new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false })), space: 90, size: 32 },
        { ...axis, values: (_, rates) => rates.map(count), size: 52 },
      ],
      series: [{}, ...SERIES.map((series) => ({ label: series.label, stroke: css(`--${series.colour}`), width: 2, points: { show: false } }))],
      hooks: { setCursor: [(plot) => this.tell(plot.cursor.idx)] },
    }, this.data, this.place);
  }

  resize() {
    if (!this.plot) this.build();
    else this.plot.setSize({ width: this.place.clientWidth, height: 220 });
  }

  show(times, columns) {
    this.data = [times.map((time) => time / 1000), ...columns];
    if (this.plot) this.plot.setData(this.data);
    else this.build();
    this.tell(this.plot?.cursor.idx);
  }

  tell(index) {
    const at = index ?? this.data[0].length - 1;
    this.values.forEach((value, series) => { value.textContent = count(this.data[series + 1][at] ?? 0); });
  }
}

// Numbers for people, and elements without markup in strings.

const plain = new Intl.NumberFormat("en");
const UNITS = ["", "k", "M", "G", "T"];

function scaled(value, step, units) {
  let unit = 0;
  while (Math.abs(value) >= step && unit < units.length - 1) { value /= step; unit += 1; }
  const digits = unit === 0 && Number.isInteger(value) ? 0 : Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return [trim(value.toFixed(digits)), units[unit]];
}

const trim = (text) => (text.includes(".") ? text.replace(/\.?0+$/, "") : text);

export const exact = (value) => plain.format(value);
export function count(value) {
  if (Math.abs(value) < 10000) return plain.format(Math.abs(value) < 10 ? Number(value.toFixed(1)) : Math.round(value));
  return scaled(value, 1000, UNITS).join("");
}
export const bytes = (value) => scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB"]).join(" ");
export function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86400)} d`;
}

/** An element: attributes by name, children as elements or text. */
export function element(name, attributes = {}, ...children) {
  const made = name === "svg" || name === "path" || name === "rect" || name === "title"
    ? document.createElementNS("http://www.w3.org/2000/svg", name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

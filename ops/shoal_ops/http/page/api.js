// The HTTP API, with the token where one is needed. The token lives in sessionStorage only.

const KEY = "shoal-token";
const TIMEOUT_MS = 10000;

export class Problem extends Error {
  constructor(problem, status) {
    super(problem.detail || `the gateway answered ${status}`);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY) || "",
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** Raises Problem for what the gateway refuses, TypeError or AbortError where nothing answers. */
export async function get(path, signal) {
  const headers = token.get() ? { Authorization: `Bearer ${token.get()}` } : {};
  const late = AbortSignal.timeout(TIMEOUT_MS);
  const response = await fetch(path, { headers, signal: signal ? AbortSignal.any([signal, late]) : late });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new Problem(body, response.status);
  return body;
}

/** A name as it stands in a path: the exact bytes where it has no text. */
export function inPath(item, what) {
  return item[`${what}_encoded`] || encodeURIComponent(item[what]).replaceAll(".", "%2E");
}

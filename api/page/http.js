// Requests to the aggregator that served this page: the key, problems, and the newest question first.

const KEY = "decaysketch-key";

// An RFC 9457 problem; `faults` are the fields it names.
export class Problem extends Error {
  constructor(status, body, retryAfter) {
    super(body?.detail || body?.title || `the aggregator answered ${status}`);
    this.status = status;
    this.faults = body?.errors ?? [];
    this.retryAfterMs = 1000 * (Number(retryAfter) || 1);
  }
}

// Why there is no answer, for who reads the page: which of the queries of a request it is, they do not see.
export const reasonOf = (error) => (error.status ? error.message.replace(/^queries\[\d+\][.:] ?/, "") : "The aggregator does not answer.");

// What may be over when the same is asked again, unlike a question that is refused.
export const mayPass = (error) => !error.status || error.status >= 500;

export const key = {
  get held() { return sessionStorage.getItem(KEY); },
  keep(text) { sessionStorage.setItem(KEY, text); },
  forget() { sessionStorage.removeItem(KEY); },
};

const asked = new WeakMap(); // signal of a request -> the request

async function ask(path, body, signal, tag, method = body === undefined ? "GET" : "POST") {
  if (signal) asked.set(signal, { path, body, method });
  const headers = { Accept: "application/json" };
  if (key.held) headers.Authorization = `Bearer ${key.held}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (tag) headers["If-None-Match"] = tag;
  const response = await fetch(path, {
    method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error",
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (tag && response.status === 304) return { response, content: null };
  // A body that ends early, such as that of an aborted request, is no answer.
  const content = response.status === 204 ? null : await (response.ok ? response.json() : response.json().catch(() => null));
  if (!response.ok) throw new Problem(response.status, content, response.headers.get("retry-after"));
  return { response, content };
}

// GET, or POST where there is a body. Throws Problem, AbortError, or TypeError where nobody answers.
export async function request(path, body, signal) {
  return (await ask(path, body, signal)).content;
}

// What changes something: PUT with a body, POST with or without one, DELETE.
export async function change(method, path, body) {
  return (await ask(path, body, undefined, undefined, method)).content;
}

const MOST_TOLD = 64;
const told = new Map(); // path -> the last answer, and its entity tag

// GET of what is asked for again and again: an answer that has not changed is not sent again.
export async function requestAgain(path) {
  const last = told.get(path);
  const { response, content } = await ask(path, undefined, undefined, last?.tag);
  if (response.status === 304) return last.content;
  if (told.size >= MOST_TOLD) told.clear();
  told.set(path, { tag: response.headers.get("etag"), content });
  return content;
}

export const streamPath = (name, rest = "") => `/v1/streams/${encodeURIComponent(name)}${rest}`;

const PATIENCE_MS = 800;
const SLOW_MS = 400; // until it is said that what is shown waits for another answer

// Asks one question at a time, and of those that come meanwhile the newest alone. A request that
// keeps a newer one waiting for much longer than the last one took is aborted. Not earlier: a server
// computes what was aborted to its end, and while a thumb is dragged any answer on the way is welcome.
export class Newest {
  #waiting = null;
  #running = null;
  #patience = PATIENCE_MS;
  #timer = 0;
  #slow = 0;
  asked = null; // the request whose answer is shown: {path, body, method}

  // ask(signal, ...arguments) -> promise; shown(answer, ms, ...arguments); failed(error, ...arguments);
  // slow(): the answer is long in coming.
  constructor(ask, shown, failed, slow = () => {}) {
    Object.assign(this, { ask, shown, failed, slow });
  }

  // `debounceMs`: wait so long for a newer one before the first is sent.
  put(args, debounceMs = 0) {
    this.#waiting = args;
    clearTimeout(this.#timer);
    if (this.#running) {
      const { controller, since } = this.#running;
      const left = since + this.#patience - performance.now();
      this.#timer = setTimeout(() => controller.abort(), Math.max(0, left));
    } else {
      this.#timer = setTimeout(() => this.#send(), debounceMs);
    }
  }

  // Drops what is asked and what waits: their answers would be of something else.
  cancel() {
    clearTimeout(this.#timer);
    clearTimeout(this.#slow);
    this.#waiting = null;
    this.#running?.controller.abort();
    this.#running = null;
  }

  async #send() {
    const args = this.#waiting;
    const run = { controller: new AbortController(), since: performance.now() };
    this.#waiting = null;
    this.#running = run;
    clearTimeout(this.#slow);
    this.#slow = setTimeout(() => this.slow(...args), SLOW_MS);
    let show;
    try {
      const answer = await this.ask(run.controller.signal, ...args);
      const took = performance.now() - run.since;
      const { signal } = run.controller;
      show = () => { this.asked = asked.get(signal); this.shown(answer, took, ...args); };
      if (this.#running === run) this.#patience = Math.max(PATIENCE_MS, 4 * took);
    } catch (error) {
      show = () => this.#refused(error, args);
    }
    if (this.#running !== run) return;
    clearTimeout(this.#timer);
    clearTimeout(this.#slow);
    this.#running = null;
    if (this.#waiting) this.#send();
    show();
  }

  #refused(error, args) {
    if (error.name === "AbortError") this.#patience *= 2;
    else if (error.status === 429) this.#again(args, error.retryAfterMs);
    else this.failed(error, ...args);
  }

  #again(args, afterMs) {
    setTimeout(() => { if (!this.#running && !this.#waiting) this.put(args); }, afterMs);
  }
}

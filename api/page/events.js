// Server-sent events with a key: EventSource shows none.

import { key, Problem } from "./http.js";

const AGAIN_MS = 2000;

// Follows a path until the function that is given back is called. `event(kind, data)`; `heard()`: a
// sign of life; `lost(error)`: the connection ended, and will be tried again.
export function follow(path, { event, heard, lost }) {
  const controller = new AbortController();
  let again = 0;

  async function connect() {
    let waitMs = AGAIN_MS;
    try {
      const headers = { Accept: "text/event-stream" };
      if (key.held) headers.Authorization = `Bearer ${key.held}`;
      const response = await fetch(path, {
        headers, signal: controller.signal, cache: "no-store", credentials: "omit", redirect: "error",
      });
      if (!response.ok) {
        throw new Problem(response.status, await response.json().catch(() => null), response.headers.get("retry-after"));
      }
      await read(response.body.pipeThrough(new TextDecoderStream()).getReader());
      lost(null);
    } catch (error) {
      if (controller.signal.aborted) return;
      if (error.status) waitMs = Math.max(AGAIN_MS, error.retryAfterMs);
      lost(error);
    }
    if (!controller.signal.aborted) again = setTimeout(connect, waitMs);
  }

  async function read(reader) {
    let kept = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done || controller.signal.aborted) return;
      heard();
      const blocks = (kept + value).split("\n\n");
      kept = blocks.pop();
      for (const block of blocks) tell(block);
    }
  }

  function tell(block) {
    const fields = block.split("\n").filter((line) => line && !line.startsWith(":")).map((line) => {
      const at = line.indexOf(":");
      return [line.slice(0, at), line.slice(at + 1).replace(/^ /, "")];
    });
    const kind = fields.find(([name]) => name === "event")?.[1];
    const data = fields.filter(([name]) => name === "data").map(([, text]) => text).join("\n");
    if (kind && data) event(kind, JSON.parse(data));
  }

  connect();
  return () => { clearTimeout(again); controller.abort(); };
}

// A panel that is asked for anew for as long as it is looked at, for one stream.

import { change, Newest, reasonOf, request, streamPath } from "./http.js";

const LOOK_MS = 3000;

// A panel says what is shown of an answer (`show`), and, where it must, how it begins with another stream
// (`begin`).
export class Watching {
  stream = null;
  #unheard = false; // the last look was in vain, and that is said

  // `rest`: of the path below the stream, or a function that gives it; `failed(error)`.
  constructor(panel, rest, failed) {
    this.panel = panel;
    this.asked = new Newest(
      (signal, stream) => request(streamPath(stream, typeof rest === "function" ? rest() : rest), undefined, signal),
      (answer, _ms, stream) => {
        if (stream !== this.stream) return;
        panel.classList.remove("stale");
        if (this.#unheard) this.fail("");
        this.#unheard = false;
        this.show(answer);
      },
      (error) => {
        panel.classList.add("stale");
        failed(error);
        if (error.status === 401) return;
        this.fail(`Not heard of now: ${reasonOf(error)}`);
        this.#unheard = true;
      },
      () => panel.classList.add("stale"),
    );
    setInterval(() => { if (this.stream && !document.hidden) this.look(); }, LOOK_MS);
  }

  watch(stream) {
    if (stream !== this.stream) { this.begin(); this.fail(""); this.#unheard = false; }
    this.stream = stream;
    this.panel.hidden = false;
    this.look();
  }

  leave() {
    this.stream = null;
    this.asked.cancel();
    this.panel.hidden = true;
  }

  look() { this.asked.put([this.stream]); }

  fail(text) { this.panel.querySelector(".error").textContent = text; }

  // Changes something below the stream, says what refuses it, and looks at what has become of it.
  async change(method, rest, body) {
    const { stream } = this;
    try {
      await change(method, streamPath(stream, rest), body);
      this.fail("");
    } catch (error) {
      this.fail(reasonOf(error));
    }
    this.#unheard = false; // what stands there now is of the change
    if (stream === this.stream) this.look();
  }
}

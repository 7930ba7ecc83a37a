// Which part of the stream is shown: results, alerts, top-k lists, sources or coverage. Only that part queries.

import { $, check, state } from "./state.js";

const CARDS = ["answers", "alerts"]; // the views next to the card of the decay

const parts = [];

// A part watches a stream, by its name, while its view is shown, and leaves it otherwise.
export const onView = (view, part) => { parts.push({ view, part }); };

export function showView() {
  const { view, stream } = state;
  check("view", view);
  $("columns").hidden = !CARDS.includes(view);
  $("columns").dataset.view = view;
  $("answers").hidden = view !== "answers";
  $("stream-alerts").hidden = view !== "alerts";
  for (const each of parts) {
    if (each.view === view) each.part.watch(stream.name);
    else each.part.leave();
  }
}

export const leaveViews = () => { for (const { part } of parts) part.leave(); };

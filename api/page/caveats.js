// Reasons to trust an interval less, next to the interval: a name each, and its meaning on a click.

import { showNote } from "./dialogs.js";
import { element } from "./nodes.js";

let meanings = {};

// The words of the service for each caveat.
export const learnCaveats = (words) => { meanings = words ?? {}; };

const tag = (name) => {
  const button = element("button", { type: "button", class: "caveat", title: meanings[name] ?? name }, name);
  button.addEventListener("click", () => showNote(name, meanings[name] ?? "The service does not explain this caveat."));
  return button;
};

// One tag for each caveat that some of the estimates carry.
export function caveatTags(...estimates) {
  const names = new Set(estimates.flatMap((each) => each?.caveats ?? []));
  return [...names].map(tag);
}

// The decay under the analyst's hand: what is chosen, how the service is told, and its curve.
//
// Closed forms are drawn from the formula the service documents, so that the curve follows the thumb;
// a text is read by the service alone, and so is its curve.

import { request } from "./http.js";

export const KINDS = ["exponential", "window", "polynomial", "expression", "none"];

// Which length of a kind the slider moves, and its name.
export const LENGTH = {
  exponential: ["halfLife", "Half-life"],
  window: ["width", "Width"],
  polynomial: ["scale", "Scale"],
};

// As the service takes it, in the stream's unit. A text is written for ages in `unit`; for a stream of
// another one its x is converted.
export function toService(decay, unit, writtenFor = unit) {
  const age = (length) => length / unit.scale;
  switch (decay.kind) {
    case "exponential": return { kind: "exponential", half_life: age(decay.halfLife) };
    case "window": return { kind: "window", width: age(decay.width) };
    case "polynomial":
      return { kind: "polynomial", exponent: decay.exponent, scale: age(decay.scale) };
    case "expression": {
      const ratio = unit.scale / writtenFor.scale;
      const text = ratio === 1 ? decay.text : decay.text.replace(/\bx\b/g, `(x*${decimal(ratio)})`);
      return { kind: "expression", text };
    }
    default: return { kind: "none" };
  }
}

// Digits without an exponent, which the language of the texts does not have.
function decimal(ratio) {
  return ratio >= 1 ? String(ratio) : ratio.toFixed(20).replace(/0+$/, "");
}

export function weight(decay, age) {
  switch (decay.kind) {
    case "exponential": return 2 ** (-age / decay.halfLife);
    case "window": return age <= decay.width ? 1 : 0;
    case "polynomial": return (1 + age / decay.scale) ** -decay.exponent;
    default: return 1;
  }
}

// In two parts: the base, and what is raised.
export function formula(decay, unit) {
  switch (decay.kind) {
    case "exponential": return ["2", `−age / ${unit.duration(decay.halfLife)}`];
    case "window": return [`1 up to ${unit.duration(decay.width)}, then 0`, ""];
    case "polynomial": return [`(1 + age / ${unit.duration(decay.scale)})`, `−${decay.exponent}`];
    case "none": return ["1 at every age", ""];
    default: return [decay.text, ""];
  }
}

// A decay that the service tells of, in words.
export function described(decay, unit) {
  const age = (value) => unit.duration(unit.fromStream(Number(value)));
  const plain = (value) => typeof value !== "string" || /^[0-9.]+$/.test(value);
  if (decay.half_life !== undefined && plain(decay.half_life)) return `a half-life of ${age(decay.half_life)}`;
  if (decay.kind === "none") return "none";
  if (decay.width !== undefined && plain(decay.width)) return `a window of ${age(decay.width)}`;
  const rest = Object.entries(decay).filter(([field]) => field !== "kind").map(([field, value]) => `${field} ${value}`);
  return [decay.kind, ...rest].join(", ");
}

const SEGMENT_POINTS = 200;

// Ages and weights of a text from the service, in the page's reckoning. Its grids are even; three of
// them, each a hundredth of the next, are dense enough for an axis of logarithms.
export async function curveOfText(text, unit, oldest, signal) {
  const stops = [oldest / 1e4, oldest / 100, oldest].map((age) => age / unit.scale);
  const decay = { kind: "expression", text };
  const ask = (stop) =>
    request("/v1/decays/curve", { decay, ages: { start: 0, stop, points: SEGMENT_POINTS } }, signal);
  const first = await ask(stops[0]); // a text that is no decay is refused once
  const grids = [first, ...await Promise.all(stops.slice(1).map(ask))];
  const points = [];
  grids.forEach((grid, i) => grid.ages.forEach((age, j) => {
    if (i === 0 || age > stops[i - 1]) points.push([age * unit.scale, grid.weights[j]]);
  }));
  return { points, text: grids[0].text };
}

// The weight by age, on the same axis of logarithms as the slider beneath it: the thumb stands at the
// half-life, the edge or the scale that it moves.

import { AGE_TICKS, number, short } from "./units.js";
import { weight } from "./decay.js";

const HEIGHT = 168;
const TOP = 14;
const BOTTOM = 26;
export const INSET = 11; // half a thumb: where the slider's travel begins

const SVG = "http://www.w3.org/2000/svg";

function node(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// The ends of the axis of ages for a span of data.
export function ageAxis(unit, span) {
  const youngest = Math.max(unit.scale, span / 2e4);
  return { youngest, oldest: Math.max(span * 20, youngest * 100) };
}

export const toShare = (axis, age) =>
  Math.log(age / axis.youngest) / Math.log(axis.oldest / axis.youngest);
export const toAge = (axis, share) => axis.youngest * (axis.oldest / axis.youngest) ** share;

// Points of a closed form, dense and with the edge of a window upright.
export function closedForm(decay, axis) {
  const ages = Array.from({ length: 161 }, (_, i) => toAge(axis, i / 160));
  if (decay.kind === "window") ages.push(decay.width, decay.width * (1 + 1e-9));
  return ages.sort((a, b) => a - b).map((age) => [age, weight(decay, age)]);
}

// `mark`: the age that the slider moves, or null.
export function draw(host, { points, axis, unit, mark, stale }) {
  const width = Math.max(200, host.clientWidth);
  const tallest = Math.max(1, ...points.map(([, each]) => each));
  const x = (age) => INSET + (width - 2 * INSET) * Math.min(1, Math.max(0, toShare(axis, age)));
  const y = (each) => HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (each / tallest);
  const svg = node("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, "aria-hidden": "true" });

  for (const share of [0, 0.5, 1]) {
    const level = y(share * tallest);
    svg.append(node("line", { class: "grid", x1: INSET, x2: width - INSET, y1: level, y2: level }));
    if (share > 0) {
      svg.append(node("text", { class: "tick", x: width - INSET, y: level - 4, "text-anchor": "end" },
        short(share * tallest)));
    }
  }
  let taken = -Infinity;
  const ticks = unit.hasClock ? AGE_TICKS : Array.from({ length: 24 }, (_, i) => 10 ** i);
  for (const age of ticks) {
    if (age < axis.youngest * 0.999 || age > axis.oldest * 1.001) continue;
    const at = x(age);
    svg.append(node("line", { class: "grid", x1: at, x2: at, y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 4 }));
    if (at - taken < 46 || at > width - 18) continue;
    const anchor = at < 24 ? "start" : "middle";
    svg.append(node("text", { class: "tick", x: anchor === "start" ? at - 4 : at, y: HEIGHT - 7, "text-anchor": anchor },
      unit.hasClock ? unit.duration(age) : short(age)));
    taken = at;
  }

  const seen = points.filter(([age]) => age >= axis.youngest);
  if (seen.length) {
    const line = seen.map(([age, each]) => `${x(age).toFixed(1)} ${y(each).toFixed(1)}`).join("L");
    const floor = y(0);
    svg.append(node("path", { class: "area", d: `M${x(seen[0][0])} ${floor}L${line}L${x(seen.at(-1)[0])} ${floor}Z` }));
    svg.append(node("path", { class: "line", d: `M${line}` }));
  }
  if (mark !== null && seen.length) {
    const held = seen.reduce((best, each) => (each[0] <= mark * (1 + 1e-12) ? each : best), seen[0])[1];
    svg.append(node("line", { class: "mark", x1: x(mark), x2: x(mark), y1: y(held), y2: HEIGHT - BOTTOM }));
    svg.append(node("circle", { class: "dot", cx: x(mark), cy: y(held), r: 5 }));
  }
  host.replaceChildren(svg);
  host.classList.toggle("stale", Boolean(stale));
}

// Ten ages over the axis, for those who read rather than look.
export function tableRows(points, axis, unit) {
  return Array.from({ length: 10 }, (_, i) => toAge(axis, i / 9)).map((age) => {
    const near = points.reduce((best, each) =>
      Math.abs(Math.log((each[0] || 1e-12) / age)) < Math.abs(Math.log((best[0] || 1e-12) / age)) ? each : best);
    return [unit.duration(near[0]), number(near[1])];
  });
}

// Lines over time, each inside the band of its interval.

import uPlot from "./vendor/uPlot.esm.js";
import { number, timeLabels, told, valueLabels, zone } from "./units.js";

const HEIGHT = 230;
const STRIP = 7; // of spans, in pixels

function ink() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  return {
    accent: of("--accent"), band: of("--band"), wide: of("--wide"), muted: of("--muted"),
    grid: of("--grid"), ink: of("--ink"), bad: of("--bad"), good: of("--good"), named: of,
  };
}

export class LineChart {
  #plot = null;
  #shape = "";
  #now = null;
  #columns = [[]];
  #lines = [];
  #unit = null;
  #between = false;
  #spans = [];
  #extent = [0, 1];

  // `picked(time)`: a time was clicked. `read(text)`: what stands under the pointer, or "".
  constructor(host, { fromZero, picked, read }) {
    Object.assign(this, { host, fromZero, picked, read });
    new ResizeObserver(() => this.#plot?.setSize(this.#size())).observe(host);
  }

  // lines: [{label, values, lower, upper, main, limit, colour}], in the order of rising values; `between` fills
  // from the first line to the last. `colour` names a custom property. A `limit` is a line that others are held against. `spans`: [{from, to,
  // state}], drawn as a strip along the top, in the colours of states.
  show({ times, lines, unit, now, between, label, spans = [] }) {
    this.#unit = unit;
    this.#spans = spans;
    this.#now = now;
    this.#lines = lines;
    this.#extent = this.#reach(lines.flatMap((each) => [...each.values, ...each.lower, ...each.upper]));
    const [bottom, top] = this.#extent;
    // A bound that is not finite lies beyond the picture.
    const bounded = (bounds, values, edge) => bounds.map((each, i) => (values[i] === null ? null : each ?? edge));
    this.#columns = [times, ...lines.flatMap(({ values, lower, upper }) =>
      [values, bounded(lower, values, bottom), bounded(upper, values, top)])];
    this.host.setAttribute("role", "img");
    this.host.setAttribute("aria-label", label);
    const shape = `${lines.map((each) => each.label)}|${unit.name}|${between}`;
    if (shape === this.#shape && this.#plot) this.#plot.setData(this.#columns);
    else { this.#shape = shape; this.#between = between; this.paint(); }
  }

  moveNow(now) {
    this.#now = now;
    this.#plot?.redraw(false);
  }

  // Anew, where colours or lines changed.
  paint() {
    if (!this.#unit) return;
    this.#plot?.destroy();
    const colour = ink();
    const axis = {
      stroke: colour.muted, font: "12px system-ui, sans-serif",
      grid: { stroke: colour.grid, width: 1 }, ticks: { show: false },
    };
    const series = this.#lines.flatMap((each) => [
      {
        stroke: each.colour ? colour.named(each.colour) : each.limit ? colour.bad : each.main ? colour.accent : colour.muted, width: each.main ? 2 : 1.25,
        dash: each.limit ? [6, 4] : undefined, points: { show: false },
      },
      { stroke: "transparent", width: 0, points: { show: false } },
      { stroke: "transparent", width: 0, points: { show: false } },
    ]);
    const bands = this.#lines.map((each, i) => ({ series: [3 * i + 3, 3 * i + 2], fill: each.colour ? `${colour.named(each.colour)}33` : colour.band }));
    if (this.#between) {
      bands.unshift({ series: [3 * this.#lines.length - 2, 1], fill: colour.wide });
    }
    this.#plot = new uPlot({
      ...this.#size(),
      padding: [10, 20, 0, 0], // the last label of times is as wide as that beyond its tick
      legend: { show: false },
      scales: {
        x: { time: this.#unit.hasClock },
        y: { range: () => this.#extent },
      },
      axes: [
        { ...axis, space: 72, values: (_p, at, _i, _s, step) => (this.#unit.hasClock ? timeLabels(at, step) : at.map(number)) },
        { ...axis, size: 56, space: 42, values: (_p, at, _i, _s, step) => valueLabels(at, step) },
      ],
      series: [{}, ...series],
      bands,
      cursor: { y: false, drag: { x: false, y: false }, points: { show: false } },
      tzDate: (time) => (zone.local ? new Date(time * 1000) : uPlot.tzDate(new Date(time * 1000), "Etc/UTC")),
      hooks: {
        draw: [(plot) => this.#markSpans(plot, colour), (plot) => this.#markNow(plot, colour)],
        setCursor: [(plot) => this.read(this.#under(plot.cursor.idx))],
      },
    }, this.#columns, this.host);
    this.#plot.over.addEventListener("click", () => {
      this.picked(this.#plot.posToVal(this.#plot.cursor.left, "x"));
    });
  }

  #size() {
    return { width: Math.max(200, this.host.clientWidth), height: HEIGHT };
  }

  // The ends of the axis of values.
  #reach(numbers) {
    const finite = numbers.filter((each) => each !== null);
    if (!finite.length) return [0, 1];
    const [low, high] = [Math.min(...finite), Math.max(...finite)];
    const [bottom, top] = this.fromZero ? [Math.min(0, low), high] : [low, high];
    const room = 0.06 * (top - bottom) || Math.abs(top) * 0.1 || 1;
    return [this.fromZero && bottom === 0 ? 0 : bottom - room, top + room];
  }

  #markSpans(plot, colour) {
    const { left, top, width } = plot.bbox;
    const x = (time) => Math.min(left + width, Math.max(left, plot.valToPos(time, "x", true)));
    plot.ctx.save();
    for (const { from, to, state } of this.#spans) {
      const [begin, end] = [x(from), x(to)];
      if (end <= left || begin >= left + width) continue;
      plot.ctx.fillStyle = { firing: colour.bad, calm: colour.good }[state] ?? colour.muted;
      const height = STRIP * devicePixelRatio * (state === "uncertain" ? 0.4 : 1);
      plot.ctx.fillRect(begin, top, Math.max(devicePixelRatio, end - begin), height);
    }
    plot.ctx.restore();
  }

  #markNow(plot, colour) {
    if (this.#now === null) return;
    const at = Math.round(plot.valToPos(this.#now, "x", true));
    const { left, top, width, height } = plot.bbox;
    if (at < left || at > left + width) return;
    const { ctx } = plot;
    ctx.save();
    ctx.strokeStyle = colour.ink;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([4 * devicePixelRatio, 4 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(at, top);
    ctx.lineTo(at, top + height);
    ctx.stroke();
    ctx.restore();
  }

  #under(index) {
    if (index === null || index === undefined) return "";
    const values = this.#lines.map(({ label, estimates }) => {
      const each = estimates[index];
      const band = each.exact || each.lower === null || each.upper === null
        ? "" : ` (${told(each, each.lower)} – ${told(each, each.upper)})`;
      return `${label} ${told(each)}${band}`;
    });
    return `${this.#unit.time(this.#columns[0][index])}: ${values.join(", ")}`;
  }
}

const SVG = "http://www.w3.org/2000/svg";

// A line of a few points with its band, for a table of streams.
export function sparkline(estimates, label) {
  const svg = document.createElementNS(SVG, "svg");
  const [width, height] = [120, 28];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("class", "spark");
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", label);
  const tallest = Math.max(1e-300, ...estimates.map((each) => each.upper ?? each.value));
  const x = (i) => ((i / (estimates.length - 1)) * width).toFixed(1);
  const y = (value) => (height - 2 - (height - 4) * (value / tallest)).toFixed(1);
  const path = (cls, d) => {
    const made = document.createElementNS(SVG, "path");
    made.setAttribute("class", cls);
    made.setAttribute("d", d);
    svg.append(made);
  };
  const upper = estimates.map((each, i) => `${x(i)} ${y(each.upper ?? each.value)}`);
  const lower = estimates.map((each, i) => `${x(i)} ${y(each.lower ?? each.value)}`).reverse();
  path("area", `M${[...upper, ...lower].join("L")}Z`);
  path("line", `M${estimates.map((each, i) => `${x(i)} ${y(each.value)}`).join("L")}`);
  return svg;
}

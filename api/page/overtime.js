// Charts over the span: the main number of a stream, and its quantiles.

import { caveatTags } from "./caveats.js";
import { LineChart } from "./charts.js";
import { hasColumns } from "./columns.js";
import { register, showOld } from "./hub.js";
import { Newest } from "./http.js";
import { drawnIn, drawnNow, note, undrawn } from "./panel.js";
import { estimateParts, showTable } from "./panels.js";
import { askSeries, familyOf, hasPast, isSeries, oldestAge, seriesLabel, seriesOf } from "./questions.js";
import { $, aboutOf, chosenRows, fixedDecay, latest, serviceDecay, shownNow, state, subject, timesOf } from "./state.js";
import { takings } from "./taking.js";
import { onTheme } from "./theme.js";
import { onNow, pickTime } from "./time.js";
import { number, told } from "./units.js";

export const line = (label, estimates, main) => ({
  label, main, estimates,
  values: estimates.map((each) => each.value),
  lower: estimates.map((each) => each.lower),
  upper: estimates.map((each) => each.upper),
});

// A panel with one chart, its legend and its table. A click on the chart chooses that time.
export class ChartPanel {
  file = null; // what is drawn, as CSV has it

  constructor(name, { fromZero }) {
    Object.assign(this, { name, id: `${name}-panel`, legend: $(`${name}-key`) });
    this.chart = new LineChart($(`${name}-chart`), {
      fromZero, picked: pickTime, read: (text) => { this.legend.textContent = text || this.legend.dataset.text; },
    });
    onNow((at) => this.chart.moveNow(at));
    onTheme(() => this.chart.paint());
  }

  // `asked()`: the request whose result is drawn.
  offerFiles(asked) {
    takings($(this.id), $(`${this.name}-title`).textContent, { asked: drawnIn(this.id, asked), table: drawnIn(this.id, () => this.file) });
  }

  // Lines over `times` of the stream. `between` fills from the first line to the last.
  show(stamps, lines, { between = false, legend = between ? "p10 – p50 – p90" : "" } = {}) {
    const times = stamps.map((stamp) => state.unit.fromStream(stamp));
    const title = $(`${this.name}-title`).textContent;
    const known = lines.flatMap((each) => each.estimates).filter((each) => each.value !== null);
    const exact = known.length > 0 && known.every((each) => each.exact);
    note(this.id, known.length ? "" : "No observation has weight in this span.");
    const [from, to] = [state.unit.time(times[0]), state.unit.time(times.at(-1))];
    const last = lines.map((each) => `${each.label} ${number(each.values.at(-1))}`).join(", ");
    this.chart.show({
      times, lines, between, unit: state.unit, now: shownNow(),
      label: `${title}, from ${from} to ${to}; at the end ${last}. The table below has the numbers.`,
    });
    this.#showLegend(legend, exact);
    $(this.id).querySelector(".caveats").replaceChildren(...caveatTags(...known));
    Object.assign($(this.id).dataset, { points: times.length, exact, last: lines[0].values.at(-1) ?? "" });
    drawnNow(this.id);
    this.file = this.#table(times, lines);
    this.#showTable(title, times, lines);
  }

  #showLegend(text, exact) {
    const bands = exact ? "exact" : `bands: ${Math.round(100 * state.confidence)} % intervals`;
    this.legend.dataset.text = [text, bands].filter(Boolean).join(" · ");
    this.legend.textContent = this.legend.dataset.text;
    this.legend.classList.toggle("exact", exact);
  }

  #table(times, lines) {
    const parts = lines.map((each) => estimateParts(each.label, (i) => each.estimates[i]));
    return {
      name: `${subject()}-${this.name}`,
      columns: ["time", "at", ...parts.flatMap(Object.keys)],
      rows: times.map((time, i) => [state.unit.toStream(time), state.unit.time(time),
        ...parts.flatMap((each) => Object.values(each).map((part) => part(i)))]),
    };
  }

  #showTable(title, times, lines) {
    const cells = (each) => {
      if (each.value === null) return ["–", "–", "–"];
      return [told(each), ...(each.exact ? ["exact", "exact"] : [told(each, each.lower), told(each, each.upper)])];
    };
    showTable($(this.id).querySelector(".as-table"), title,
      ["Time", ...lines.flatMap((each) => [each.label, "lower", "upper"])],
      times.map((time, i) => [state.unit.time(time), ...lines.flatMap(({ estimates }) => cells(estimates[i]))]));
  }
}

// The times of the charts. Counters of keys reach back as far as their windows stay within the ages they keep.
export function timesAsked() {
  const { stream, unit, decay, span } = state;
  const times = timesOf(unit, latest(), span);
  const most = familyOf(stream).keys ? oldestAge(stream) : null;
  if (!most || stream.clock === null || decay.kind !== "window") return times;
  const first = stream.clock - most + unit.toStream(decay.width);
  const steps = Math.max(0, Math.floor((times.stop - first) / times.step));
  return { ...times, start: Math.max(times.start, times.stop - steps * times.step) };
}

// Why a stream has no past to draw, or "".
export function noPast(stream) {
  if (fixedDecay()) {
    const since = stream.clock === null ? "" : ` from ${state.unit.time(state.unit.fromStream(stream.clock))} on`;
    return `A stream with a fixed decay forgets what has expired: it answers${since}, and has no past to draw.`;
  }
  return hasPast(stream) ? "" : "The largest and least values are known as of the newest observation alone: there is no past to draw.";
}

const count = new ChartPanel("count", { fromZero: true });
const quantile = new ChartPanel("quantile", { fromZero: false });
const both = [count, quantile];

const series = new Newest(
  (signal, stream, query) => askSeries(stream, query, signal),
  ({ times, count: counts, quantiles }, _ms, stream) => {
    count.show(times, [line(seriesOf(stream), counts, true)]);
    $("quantile-panel").hidden = quantiles === null;
    if (quantiles) quantile.show(times, Object.entries(quantiles).map(([name, each]) => line(name, each, name === "p50")), { between: true });
  },
  (error) => { for (const { id } of both) undrawn(id, error); },
  () => { for (const { id } of both) showOld(id, "asking"); },
);

register({
  id: "count-panel",
  present(stream) {
    $("count-panel").hidden = isSeries(stream);
    $("count-title").textContent = hasPast(stream) || stream.decay ? `${seriesLabel(stream)} over time` : "Over time";
    const { unit } = aboutOf(stream);
    $("quantile-title").textContent = unit && !hasColumns(stream) ? `Values over time, ${unit}` : "Values over time";
    $("quantile-panel").hidden = !familyOf(stream).values || Boolean(stream.decay);
  },
  overTime(ms) {
    const { stream, confidence, source } = state;
    if (isSeries(stream)) return;
    const why = noPast(stream);
    if (why) note("count-panel", why);
    else series.put([stream, { decay: serviceDecay(), times: timesAsked(), confidence, source, rows: chosenRows() }], ms);
  },
  cancel: () => series.cancel(),
});
register({ id: "quantile-panel" });
for (const each of both) each.offerFiles(() => series.asked);

// What an alert was before the page was opened: its states, from the history that the service retains, and
// its value, from the sketch.

import { request, streamPath } from "./http.js";
import { Unit } from "./units.js";

const LONGEST_S = 86400;
const SHORTEST_S = 900;
const POINTS = 120;
const MOST_STATES = 500;

// The query that gives the value of a spec; null where none does.
function queryOf(spec) {
  if (spec.by || spec.question === "max" || spec.question === "min") return null;
  const rows = { ...(spec.where && { where: spec.where }), ...(spec.of && { of: spec.of }) };
  if (spec.question === "share") return { aggregate: "selectivity", predicate: spec.predicate, ...rows };
  if (spec.question === "rank") return { aggregate: "rank", v: spec.value, ...rows };
  if (spec.question === "quantile") return { aggregate: "quantile", q: [spec.q], ...rows };
  return { aggregate: spec.question, ...rows };
}

// Its states: [{since, until, state, alert, explanation, ...}], oldest first.
export function askStates(stream, name, signal, group = null) {
  const of = group === null ? "" : `&group=${encodeURIComponent(group)}`;
  const path = streamPath(stream, `/monitors/${encodeURIComponent(name)}/history?from=24h&limit=${MOST_STATES}${of}`);
  return request(path, undefined, signal);
}

// Its values over the time of these states, at most a day: [{at, value, lower, upper, threshold}].
export async function askValues(stream, { spec, threshold }, states, signal) {
  const query = queryOf(spec);
  const end = Date.now() / 1000;
  const first = Math.min(states[0]?.since ?? end, end - SHORTEST_S);
  const known = states.filter((each) => each.value !== null)
    .map(({ since, value, lower, upper, threshold: line }) => ({ at: since, value, lower, upper, threshold: line ?? threshold }));
  if (query === null || !stream) return known;
  const unit = new Unit(stream.params.time_unit);
  const [start, stop] = [unit.toStream(Math.max(first, end - LONGEST_S)), unit.toStream(end)];
  const step = Math.max(1, Math.floor((stop - start) / POINTS));
  const asked = { ...query, times: { start, stop, step }, ...(spec.decay && { decay: spec.decay }) };
  try {
    const { answers } = await request(streamPath(stream.name, "/query"), { queries: [asked] }, signal);
    return answers[0].points.map((point) => {
      const { value, lower, upper } = (point.quantiles?.[0] ?? point).estimate;
      return { at: unit.fromStream(point.now), value, lower, upper, threshold };
    });
  } catch (error) {
    if (error.name === "AbortError" || !error.status) throw error;
    return known; // a sketch that cannot be asked about the past
  }
}

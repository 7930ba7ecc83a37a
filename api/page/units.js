// Times, durations and numbers as people read them.
//
// The page reckons in seconds where the stream's `time_unit` has a wall clock, and in the unit itself
// elsewhere; `Unit` converts.

const SECONDS = { ns: 1e-9, us: 1e-6, ms: 1e-3, s: 1, m: 60, min: 60, h: 3600, d: 86400 };
const SPANS = [
  ["y", 31557600], ["d", 86400], ["h", 3600], ["min", 60], ["s", 1], ["ms", 1e-3], ["µs", 1e-6],
  ["ns", 1e-9],
];
const WRITTEN = {
  ns: 1e-9, us: 1e-6, "µs": 1e-6, ms: 1e-3, s: 1, sec: 1, second: 1, seconds: 1, m: 60, min: 60,
  minute: 60, minutes: 60, h: 3600, hour: 3600, hours: 3600, d: 86400, day: 86400, days: 86400,
  w: 604800, week: 604800, weeks: 604800, y: 31557600, year: 31557600, years: 31557600,
};

// What people write for some of these; a text with one of them is not read, lest "mo" be minutes.
const MEANT = {
  msec: "ms", msecs: "ms", secs: "s", mins: "min", hr: "h", hrs: "h", wk: "w", wks: "w", yr: "y", yrs: "y",
};

const UNSIGNED_ZERO = { signDisplay: "negative" };
const significant = (digits) => new Intl.NumberFormat("en", { maximumSignificantDigits: digits, ...UNSIGNED_ZERO });
const SHORT = significant(3);
const FOUR = significant(4);
const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0, ...UNSIGNED_ZERO });

// Four digits that mean something, and every digit of a whole part.
export function number(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e12 || size < 1e-4)) return value.toExponential(3).replace("e", " e");
  return size >= 1000 ? WHOLE.format(value) : FOUR.format(value);
}

const NARROW = 1e-6; // of the value: an interval of half this width says nothing to who reads the page

// As many digits as the interval leaves meaning to: two of its half width.
export function told({ value, lower, upper, exact }, written = value) {
  const half = (upper - lower) / 2;
  if (exact || lower === null || upper === null || written === null || !(half > NARROW * Math.abs(value))) return number(written);
  const decimals = Math.min(8, Math.max(0, 1 - Math.floor(Math.log10(half))));
  // Where the half width is not small either, a value near zero is zero.
  if (Math.abs(written) >= 1e12 || (written !== 0 && half < 1e-4 && Math.abs(written) < 1e-4)) return number(written);
  return written.toLocaleString("en", { minimumFractionDigits: Math.min(decimals, 6), maximumFractionDigits: decimals, ...UNSIGNED_ZERO });
}

const SIZES = ["bytes", "KB", "MB", "GB", "TB", "PB"];

export function bytes(size) {
  const step = Math.min(SIZES.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(1, size)) / 3)));
  return `${SHORT.format(size / 1000 ** step)}\u00a0${SIZES[step]}`;
}

const MOST_NAMED = 20;

// Names, the first of them where there are many.
export function named(names) {
  const more = names.length - MOST_NAMED;
  return names.slice(0, MOST_NAMED).join(", ") + (more > 0 ? ` and ${number(more)} more` : "");
}

// Of the values along an axis, which has room for few letters, so many digits that none reads as its neighbour.
export function valueLabels(values, step) {
  const most = Math.max(...values.map(Math.abs));
  if (!(most > 0)) return values.map(number);
  const digits = Math.min(15, Math.max(1, Math.floor(Math.log10(most)) - Math.floor(Math.log10(step)) + 2)); // steps such as 2.5
  if (most < 1e-4) return values.map((value) => (value === 0 ? "0" : value.toExponential(digits - 1).replace(/\.?0*e/, " e")));
  const written = new Intl.NumberFormat("en", {
    notation: most >= 1e5 ? "compact" : "standard", maximumSignificantDigits: digits, ...UNSIGNED_ZERO,
  });
  return values.map((value) => written.format(value));
}

export const short = (value) => SHORT.format(value);
export const percent = (share) => `${SHORT.format(100 * share)}\u00a0%`;

const THREE = new Intl.NumberFormat("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });

// The same with its zeros, for columns.
export const share = (part) => `${part === 1 ? "100" : THREE.format(100 * part)}\u00a0%`;

const ZONE = "decaysketch-zone";

// Whether times are those of this machine. Else they are UTC.
export const zone = {
  get local() { return localStorage.getItem(ZONE) === "local"; },
  choose(name) { localStorage.setItem(ZONE, name); },
  get name() { return zone.local ? "local" : "UTC"; },
};

export class Unit {
  constructor(name) {
    this.name = name;
    this.seconds = SECONDS[name] ?? null;
    this.scale = this.seconds ?? 1; // of the unit, in what the page reckons in
  }

  get hasClock() { return this.seconds !== null; }

  // From the page's reckoning to the stream's whole numbers, and back.
  toStream(time) { return Math.round(time / this.scale); }
  fromStream(time) { return time * this.scale; }

  clock() { return Date.now() / 1000; }

  duration(length) {
    if (!this.hasClock) return `${SHORT.format(length)}\u00a0${this.name}`;
    const [name, size] = SPANS.find(([, each]) => length >= each * 0.9995) ?? SPANS.at(-1);
    return `${SHORT.format(length / size)}\u00a0${name}`;
  }

  // "90", "1.5 h", "2 days"; null where it is not a positive length. A bare number is of the unit.
  parseDuration(text) {
    const found = /^\s*([0-9]*\.?[0-9]+(?:e[+-]?[0-9]+)?)\s*([a-zµ]*)\s*$/iu.exec(text);
    if (!found) return null;
    const word = found[2];
    let size = WRITTEN[word] ?? WRITTEN[word.toLowerCase()];
    if (word === "" || word === this.name) size = this.scale;
    else if (!this.hasClock) return null;
    const length = Number(found[1]) * size;
    return Number.isFinite(length) && length > 0 ? length : null;
  }

  // Why `parseDuration` does not read a text, and what to write in its place.
  faultOfDuration(text) {
    const typed = text.trim();
    const form = this.hasClock ? "a number above 0 and its unit, such as 90s, 1.5h or 2d" : `a number of ${this.name} above 0, such as 90`;
    if (typed === "") return `no length of time is written: write ${form}`;
    const [, size, word] = /^[-+−]?\s*([0-9]*\.?[0-9]+)\s*([a-zµ]*)\.?$/iu.exec(typed) ?? [];
    const meant = size && size + (MEANT[word.toLowerCase()] ?? word);
    return `'${typed}' is no length of time: write ${meant && this.parseDuration(meant) !== null ? meant : form}`;
  }

  time(at) {
    if (!this.hasClock) return `${WHOLE.format(at)} ${this.name}`;
    const date = new Date(at * 1000);
    if (Number.isNaN(date.getTime())) return `${number(this.toStream(at))} ${this.name}`;
    const shown = zone.local ? new Date(date.getTime() - 60000 * date.getTimezoneOffset()) : date;
    return shown.toISOString().slice(0, 19).replace("T", " ");
  }

  // What `time` writes, or a bare integer of the unit; null where it is neither.
  parseTime(text) {
    const plain = text.trim();
    if (/^-?[0-9]+$/.test(plain) && !(this.hasClock && plain.length === 4)) {
      return this.fromStream(Number(plain));
    }
    if (!this.hasClock) {
      const bare = plain.replace(this.name, "").replace(/[,\s]/g, "");
      return /^-?[0-9]+$/.test(bare) ? Number(bare) : null;
    }
    const found = /^([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?))?(Z?)$/.exec(plain);
    const utc = found && (found[3] || !zone.local) ? "Z" : "";
    const at = found ? Date.parse(`${found[1]}T${found[2] ?? "00:00"}${utc}`) : NaN;
    return Number.isNaN(at) ? null : at / 1000;
  }

  // Lengths that people think in, rising.
  get niceLengths() { return this.hasClock ? NICE : POWERS; }
}

const steps = (size, ...counts) => counts.map((count) => count * size);
const NICE = [
  ...steps(1e-3, 1, 10, 100), ...steps(1, 1, 2, 5, 10, 30), ...steps(60, 1, 2, 5, 10, 20, 30),
  ...steps(3600, 1, 2, 3, 6, 12), ...steps(86400, 1, 2, 3, 7, 14, 30, 60, 90, 180),
  ...steps(31557600, 1, 2, 5, 10),
];
const POWERS = Array.from({ length: 40 }, (_, i) => [1, 2, 5][i % 3] * 10 ** Math.floor(i / 3));

export const AGE_TICKS = [1e-3, 1, 60, 3600, 86400, 2592000, 31557600, 315576000];

// How long ago an instant is, by the clock of this browser; one of a clock that is ahead is now.
export function ago(at) {
  const past = Date.now() / 1000 - at;
  return past < 1 ? "now" : `${new Unit("s").duration(past < 60 ? Math.floor(past) : past)} ago`;
}

const DATE = { month: "short", day: "numeric" };
const HOUR = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };

// How many a step of less than a second has, of the three that are written.
const decimalsOf = (step) => [1, 2].find((digits) => Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) < 1e-6) ?? 3;

const SECOND = { ...HOUR, second: "2-digit" };

// Labels of instants along an axis: the day where it changes, else no more than the steps need. Steps
// below what an instant is written to are labelled once.
export function timeLabels(instants, step) {
  const write = (options) => new Intl.DateTimeFormat("en", { ...options, timeZone: zone.local ? undefined : "UTC" });
  const [year, day] = [write({ year: "numeric" }), write(DATE)];
  const hour = write(step < 1 ? { ...SECOND, fractionalSecondDigits: decimalsOf(step) } : step < 60 ? SECOND : HOUR);
  let [before, last] = ["", ""];
  return instants.map((instant) => {
    const date = new Date(Math.round(instant * 1000));
    if (step >= 28 * 86400) return step >= 360 * 86400 ? year.format(date) : `${day.format(date)}\n${year.format(date)}`;
    if (step >= 86400) return day.format(date);
    const today = day.format(date);
    const [time, known] = [hour.format(date), today === before];
    if (known && time === last) return "";
    [before, last] = [today, time];
    return known ? time : `${time}\n${today}`;
  });
}

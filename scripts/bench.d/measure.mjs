// Floors, pairs and lines: what all benches share.
import { spawnSync } from 'node:child_process';

export const node = process.execPath;
/** Floor and subject alternate so often; a run with fewer pairs is a look, not a measurement. */
export const PAIRS = Number(process.env.TRESTLE_BENCH_PAIRS ?? 30);
const WARM_UP = Math.min(5, PAIRS);

export class NotMeasurable extends Error {}

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const sorted = (values) => [...values].sort((a, b) => a - b);
export const median = (values) => sorted(values)[values.length >> 1];
export const percentile = (values, p) => sorted(values)[Math.min(values.length - 1, Math.ceil(values.length * p) - 1)];
/** Milliseconds since 1970 with a fraction: comparable between the processes of one machine. */
export const wall = () => performance.timeOrigin + performance.now();

export function check(condition, message) {
  if (!condition) throw new NotMeasurable(message);
}

/** Waits until `look` answers something else than undefined. */
export async function until(what, look, { within = 30_000, every = 5 } = {}) {
  const end = performance.now() + within;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    check(performance.now() < end, `${what} did not happen within ${within / 1000} s`);
    await pause(every);
  }
}

/** The wall time of `node -e 0` in milliseconds, the floor of everything that starts a program. */
export function nodeFloor() {
  const begin = performance.now();
  const { status } = spawnSync(node, ['-e', '0'], { stdio: 'ignore' });
  const time = performance.now() - begin;
  check(status === 0, 'node -e 0 failed');
  return time;
}

export const floorMedian = (count = 15) => median(Array.from({ length: count }, nodeFloor));

/** Alternates floor and subject; the first pairs fill caches and are left out. `index` counts all of them. */
export async function pairs(floor, subject, { count = PAIRS } = {}) {
  const taken = { floors: [], subjects: [] };
  for (let index = 0; index < count + WARM_UP; index += 1) {
    const first = await floor(index);
    const second = await subject(index);
    if (index >= WARM_UP) {
      taken.floors.push(first);
      taken.subjects.push(second);
    }
  }
  return taken;
}

// ---------------------------------------------------------------------------------------------
// Lines: name what value floor ratio bound ok|MISS

let missed = false;
export const anyMissed = () => missed;

const number = (value, unit) => `${value.toFixed(value < 10 && unit !== 'MB' ? 2 : 1)} ${unit}`;

function line(name, what, value, floor, ratio, bound, verdict) {
  if (verdict === 'MISS') missed = true;
  const cells = [name.padEnd(6), what.padEnd(50), value.padStart(10), floor.padStart(10), ratio.padStart(6), bound.padStart(10), verdict];
  console.log(cells.join('  ').trimEnd());
}

export function heading() {
  line('name', 'what', 'value', 'floor', 'ratio', 'bound', '');
}

/** A value that may be at most `bound` times its floor; no bound: listed for information. */
export function ratioLine(name, what, value, floor, bound, unit = 'ms') {
  const ratio = value / floor;
  const verdict = bound === undefined ? '-' : ratio <= bound ? 'ok' : 'MISS';
  line(name, what, number(value, unit), number(floor, unit), ratio.toFixed(2), bound === undefined ? '-' : `≤ ${bound.toFixed(1)} ×`, verdict);
}

/** A time whose bound holds on a machine with a floor of 20 ms and grows with a slower one's. */
export function timeLine(name, what, value, floor, bound) {
  const scaled = bound === undefined ? undefined : bound * Math.max(1, floor / 20);
  const verdict = scaled === undefined ? '-' : value <= scaled ? 'ok' : 'MISS';
  line(name, what, number(value, 'ms'), number(floor, 'ms'), '-', scaled === undefined ? '-' : `≤ ${number(scaled, 'ms')}`, verdict);
}

/** A time that may exceed its own floor by `bound`, which grows with the floor of the machine. */
export function beyondLine(name, what, value, own, floor, bound) {
  const scaled = bound * Math.max(1, floor / 20);
  const verdict = value - own <= scaled ? 'ok' : 'MISS';
  line(name, what, number(value, 'ms'), number(own, 'ms'), (value / own).toFixed(2), `≤ +${scaled.toFixed(0)} ms`, verdict);
}

/** A size; it depends on no floor. */
export function sizeLine(name, what, value, bound, unit = 'MB') {
  const verdict = bound === undefined ? '-' : value <= bound ? 'ok' : 'MISS';
  line(name, what, number(value, unit), '-', '-', bound === undefined ? '-' : `≤ ${bound} ${unit}`, verdict);
}

/** What a person wants to know beside a line; on stderr, so that the table stays a table. */
export const note = (text) => console.error(`  ${text}`);

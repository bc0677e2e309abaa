// Runs the named benches and prints one table. Exit 0: all bounds met, 1: one missed, 2: not measurable.
import { availableParallelism } from 'node:os';
import { NotMeasurable, PAIRS, anyMissed, floorMedian, heading, node } from './measure.mjs';
import { start } from './start.mjs';
import { burst } from './burst.mjs';
import { deltas } from './deltas.mjs';
import { logs } from './logs.mjs';
import { memory } from './memory.mjs';
import { polls } from './polls.mjs';

const benches = { start, burst, deltas, logs, memory, polls };
const wanted = process.argv.slice(2);
const names = wanted.length > 0 ? wanted : Object.keys(benches);
const unknown = names.filter((name) => !Object.hasOwn(benches, name));
if (unknown.length > 0) {
  console.error(`error: no bench ${unknown.join(', ')}; there are: ${Object.keys(benches).join(', ')}`);
  process.exit(2);
}
console.log(`node ${process.version} at ${node}: node -e 0 median ${floorMedian(30).toFixed(1)} ms; ${availableParallelism()} cores; ${PAIRS} pairs`);
heading();
let measurable = true;
for (const name of names) {
  try {
    await benches[name]();
  } catch (error) {
    measurable = false;
    console.error(`not measurable: ${name}: ${error instanceof NotMeasurable ? error.message : error.stack}`);
  }
}
process.exitCode = measurable ? Number(anyMissed()) : 2;

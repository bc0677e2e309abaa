// start: a no-op run from its trigger to its terminal event at an event-stream client; and the same for a runner
// of its own process, as the server sees it.
import { randomUUID } from 'node:crypto';
import { check, floorMedian, median, nodeFloor, note, pairs, percentile, ratioLine, timeLine } from './measure.mjs';
import { Server, separateRunner, standingBy } from './trestle.mjs';

const WORKFLOWS = 10;

const deployAll = (server) =>
  Array.from({ length: WORKFLOWS }, (_, n) =>
    server.deploy(`no-op-${n}`, `export default (input) => ({ nonce: input.nonce, pid: process.pid, n: ${n} });\n`),
  );

/** One run; its nonce comes back, and its process has served no other run. */
async function noOp(server, workflows, index, pids) {
  const nonce = randomUUID();
  const begin = performance.now();
  const { run, output } = await server.execute(workflows[index % WORKFLOWS], { nonce });
  const time = performance.now() - begin;
  check(output.nonce === nonce && output.n === index % WORKFLOWS, `wrong output ${JSON.stringify(output)}`);
  check(!pids.has(output.pid), `process ${output.pid} served twice`);
  pids.add(output.pid);
  return { run, time };
}

async function wholePath(what, prestart, bound) {
  const server = await Server.up(['--prestart', String(prestart)]);
  try {
    const workflows = deployAll(server);
    const pids = new Set();
    const quiet = () => (prestart > 0 ? standingBy(server.pid, prestart) : undefined);
    const { floors, subjects } = await pairs(
      async () => {
        await quiet();
        return nodeFloor();
      },
      async (index) => (await noOp(server, workflows, index, pids)).time,
    );
    ratioLine('start', what, median(subjects), median(floors), bound);
    note(`p90 ${percentile(subjects, 0.9).toFixed(1)} ms, floor p90 ${percentile(floors, 0.9).toFixed(1)} ms over ${subjects.length} pairs`);
  } finally {
    await server.stop();
  }
}

const UNITS = { ns: 1e-6, µs: 1e-3, ms: 1, s: 1000 };

/** When each request was answered and when it had come, in milliseconds, from the server's log. */
function answered(log) {
  const found = [];
  for (const line of log.split('\n')) {
    if (!line.startsWith('{') || !line.includes('"answered"')) continue;
    const { timestamp, path, status, elapsed } = JSON.parse(line);
    const [, amount, unit] = /^([\d.]+)(ns|µs|ms|s)$/.exec(elapsed);
    const micros = Number(/\.(\d{6})Z$/.exec(timestamp)[1]);
    const at = Math.floor(Date.parse(timestamp) / 1000) * 1000 + micros / 1000;
    found.push({ path, status, at, came: at - Number(amount) * UNITS[unit] });
  }
  return found;
}

/** From the offer to the accepted end, and from there to the next poll, of each run. */
function machineTimes(log) {
  const requests = answered(log);
  const of = new Map();
  const polls = requests.filter(({ path }) => path === '/runner/v1/pool/poll');
  for (const { path, status, at } of requests) {
    const run = /^\/runner\/v1\/runs\/([^/]+)\/finalize$/.exec(path)?.[1];
    if (run === undefined || status !== 204) continue;
    // One slot: the poll that was answered last before the end brought this run, the next one comes after it.
    const offer = polls.findLast((poll) => poll.at < at);
    const next = polls.find((poll) => poll.came > offer.at);
    of.set(run, { offered: at - offer.at, polled: next === undefined ? undefined : Math.max(0, next.came - at) });
  }
  return of;
}

async function separate() {
  const server = await Server.up(['--no-runner'], { TRESTLE_LOG: 'warn,trestle_server::listener=debug', TRESTLE_LOG_FORMAT: 'json' });
  let runner;
  try {
    runner = await separateRunner(server, ['--slots', '1', '--prestart', '1']);
    const workflows = deployAll(server);
    const pids = new Set();
    const runs = [];
    const { floors } = await pairs(
      async () => {
        await standingBy(runner.pid);
        return nodeFloor();
      },
      async (index) => {
        runs[index] = (await noOp(server, workflows, index, pids)).run;
      },
    );
    const times = machineTimes(server.log());
    const measured = runs.slice(-floors.length).map((run) => {
      const found = times.get(run);
      check(found !== undefined, `the log has no end of run ${run}`);
      return found;
    });
    const polled = measured.map((each) => each.polled).filter((each) => each !== undefined);
    check(polled.length >= measured.length - 1, 'the log misses polls');
    ratioLine('start', 'separate runner, prestarted: offer to finalize', median(measured.map((each) => each.offered)), median(floors), 1);
    timeLine('start', 'separate runner: finalize to next poll', median(polled), floorMedian(), 5);
  } finally {
    await runner?.stop();
    await server.stop();
  }
}

export async function start() {
  await wholePath('no-op run, prestarted: trigger to terminal event', 1, 1);
  await wholePath('no-op run, cold: trigger to terminal event', 0, 2);
  await separate();
}

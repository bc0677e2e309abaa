// polls: 10,000 runners whose polls are parked, from a process of their own; then 1,000 offers at 100 a second, from the
// commit of a run to the bytes of its offer at the poller.
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { check, floorMedian, note, pause, percentile, sizeLine, timeLine, wall } from './measure.mjs';
import { memory } from './processes.mjs';
import { Server } from './trestle.mjs';

const POLLS = Number(process.env.TRESTLE_BENCH_POLLS ?? 10_000);
const OFFERS = Number(process.env.TRESTLE_BENCH_OFFERS ?? 1000);
const EVERY_MS = 10;

async function enrol(server) {
  const tokens = [];
  let next = 0;
  const lane = async () => {
    while (next < POLLS) {
      next += 1;
      const { runnerToken } = await server.request('POST', `/v1/orgs/${server.org}/runners`, { pool: 'default', name: `bench-${next}` });
      tokens.push(runnerToken);
    }
  };
  await Promise.all(Array.from({ length: 64 }, lane));
  return tokens;
}

/** The process that holds the polls; it says a line for each thing that happens. */
class Poller {
  constructor(server, tokens) {
    const file = join(server.home, 'tokens.json');
    writeFileSync(file, JSON.stringify(tokens), { mode: 0o600 });
    const program = fileURLToPath(new URL('./floors/poller.mjs', import.meta.url));
    this.child = spawn(process.execPath, [program, server.url.hostname, server.url.port, file], { stdio: ['ignore', 'pipe', 'inherit'] });
    this.ended = new Promise((resolve) => { this.child.on('exit', resolve); });
    this.offers = new Map();
    this.parked = new Promise((resolve, reject) => {
      this.child.on('exit', () => reject(new Error('the poller ended')));
      createInterface({ input: this.child.stdout }).on('line', (line) => {
        const message = JSON.parse(line);
        if (message.parked !== undefined) resolve(message.parked);
        else {
          check(!this.offers.has(message.run), `run ${message.run} was claimed twice`);
          this.offers.set(message.run, message.at);
        }
      });
    });
  }

  async stop() {
    this.parked.catch(() => {});
    this.child.kill('SIGKILL');
    await this.ended;
  }
}

/** When the creation of each run was committed, by the server's own log. */
function commits(log) {
  const found = new Map();
  for (const line of log.split('\n')) {
    if (!line.startsWith('{') || !line.includes('"committed"')) continue;
    const { timestamp, run } = JSON.parse(line);
    if (run === undefined || found.has(run)) continue;
    const micros = Number(/\.(\d{6})Z$/.exec(timestamp)[1]);
    found.set(run, Math.floor(Date.parse(timestamp) / 1000) * 1000 + micros / 1000);
  }
  return found;
}

async function offer(server, workflow) {
  const runs = [];
  const begin = wall();
  const triggers = [];
  for (let n = 0; n < OFFERS; n += 1) {
    const wait = begin + n * EVERY_MS - wall();
    if (wait > 0) await pause(wait);
    triggers.push(server.trigger(workflow, null).then((run) => runs.push(run)));
  }
  await Promise.all(triggers);
  const rate = (OFFERS / (wall() - begin)) * 1000;
  check(rate > 95, `only ${rate.toFixed(0)} runs a second could be started`);
  return runs;
}

export async function polls() {
  const server = await Server.up(['--no-runner'], { TRESTLE_LOG: 'warn,trestle_store::sqlite::writer=trace', TRESTLE_LOG_FORMAT: 'json' });
  let poller;
  try {
    const workflow = server.deploy('never-run', 'export default () => null;\n');
    const tokens = await enrol(server);
    await pause(2000);
    const empty = memory(server.pid).resident;
    const floorBefore = floorMedian();
    poller = new Poller(server, tokens);
    const parked = await poller.parked;
    check(parked === POLLS, `${parked} polls are parked`);
    await pause(3000);
    const full = memory(server.pid).resident;
    const runs = await offer(server, workflow);
    const end = wall() + 20_000;
    while (runs.some((run) => !poller.offers.has(run)) && wall() < end) await pause(50);
    const committed = commits(server.log());
    const times = runs.map((run) => {
      check(poller.offers.has(run), `run ${run} was offered to nobody`);
      check(committed.has(run), `the log has no commit of run ${run}`);
      return poller.offers.get(run) - committed.get(run);
    });
    check(times.every((time) => time > -1), 'an offer came before its commit');
    const floor = Math.max(floorBefore, floorMedian());
    sizeLine('polls', `memory of one of ${POLLS} parked polls`, ((full - empty) * 1000) / POLLS, 20, 'kB');
    note(`server ${empty.toFixed(1)} MB without polls, ${full.toFixed(1)} MB with them`);
    timeLine('polls', `${OFFERS} offers at 100/s: commit to poller, p50`, percentile(times, 0.5), floor, 5);
    timeLine('polls', `${OFFERS} offers at 100/s: commit to poller, p99`, percentile(times, 0.99), floor, 25);
  } finally {
    await poller?.stop();
    await server.stop();
  }
}

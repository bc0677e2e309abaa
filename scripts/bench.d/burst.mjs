// burst: 200 no-op runs at once, and a closed loop of 4, against as many starts of a floor program at the same
// concurrency. Each run executes once: its program leaves a line in a file.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { check, median, node, note, pairs, ratioLine } from './measure.mjs';
import { Server, standingBy } from './trestle.mjs';

const RUNS = 200;
const SOURCE = `import { appendFileSync } from 'node:fs';
export default function run(input) {
  appendFileSync(input.ledger, input.nonce + '\\n');
  return input.nonce;
}
`;

/** Does `count` pieces of work, at most `at_once` at the same time. */
async function inLanes(count, atOnce, work) {
  let next = 0;
  const lane = async () => {
    while (next < count) {
      next += 1;
      await work(next - 1);
    }
  };
  await Promise.all(Array.from({ length: Math.min(count, atOnce) }, lane));
}

/** A program that connects a Unix socket, imports one line, exits: what every run has to do. */
class FloorProgram {
  static async prepare() {
    const floor = new FloorProgram();
    floor.home = mkdtempSync(join(tmpdir(), 'trestle-floor-'));
    floor.socket = join(floor.home, 'socket');
    floor.connections = 0;
    writeFileSync(join(floor.home, 'line.mjs'), 'export default 1;\n');
    writeFileSync(
      join(floor.home, 'floor.mjs'),
      `import { connect } from 'node:net';
const socket = connect(process.argv[2]);
socket.once('connect', async () => {
  await import('./line.mjs');
  process.exit(0);
});
`,
    );
    floor.server = createServer((connection) => {
      floor.connections += 1;
      connection.on('error', () => {});
      connection.resume();
    });
    await new Promise((listening) => floor.server.listen(floor.socket, listening));
    return floor;
  }

  start() {
    return new Promise((resolve, reject) => {
      const child = spawn(node, [join(this.home, 'floor.mjs'), this.socket], { stdio: 'ignore' });
      child.on('error', reject);
      child.on('exit', (code) => (code === 0 ? resolve() : reject(new Error(`the floor program exited ${code}`))));
    });
  }

  async time(concurrency) {
    this.connections = 0;
    const begin = performance.now();
    await inLanes(RUNS, concurrency, () => this.start());
    const time = performance.now() - begin;
    check(this.connections === RUNS, `the floor program connected ${this.connections} times`);
    return time;
  }

  close() {
    this.server.close();
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** RUNS runs, `clients` at a time; each executed exactly once and completed. */
async function runAll(server, workflow, round, clients) {
  const ledger = join(server.home, `ledger-${clients}-${round}`);
  writeFileSync(ledger, '');
  const nonces = Array.from({ length: RUNS }, (_, n) => `${round}-${n}`);
  const begin = performance.now();
  await inLanes(RUNS, clients, async (n) => {
    const { output } = await server.execute(workflow, { ledger, nonce: nonces[n] });
    check(output === nonces[n], `run ${nonces[n]} returned ${output}`);
  });
  const time = performance.now() - begin;
  const executed = readFileSync(ledger, 'utf8').trimEnd().split('\n').sort();
  check(executed.join() === [...nonces].sort().join(), `executed ${executed.length} times, ${new Set(executed).size} of ${RUNS} runs`);
  rmSync(ledger);
  return time;
}

export async function burst() {
  const floor = await FloorProgram.prepare();
  const server = await Server.up();
  try {
    const workflow = server.deploy('no-op', SOURCE);
    const slots = availableParallelism();
    // All at once: as many of them work at a time as there are slots.
    for (const [what, clients, concurrency] of [
      [`${RUNS} no-op runs at once`, RUNS, slots],
      [`${RUNS} no-op runs in a closed loop of 4`, 4, 4],
    ]) {
      const { floors, subjects } = await pairs(
        () => floor.time(concurrency),
        async (round) => {
          await standingBy(server.pid);
          return runAll(server, workflow, round, clients);
        },
      );
      ratioLine('burst', what, median(subjects), median(floors), 1.4);
      note(`${((RUNS / median(subjects)) * 1000).toFixed(1)} runs/s; the floor program ${((RUNS / median(floors)) * 1000).toFixed(1)} starts/s at ${concurrency} at a time; none failed, each executed once`);
    }
  } finally {
    await server.stop();
    floor.close();
  }
}

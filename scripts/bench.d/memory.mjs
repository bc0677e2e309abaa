// memory: what idle processes hold, and what the command itself costs.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { check, median, node, nodeFloor, note, pairs, pause, sizeLine, timeLine, until } from './measure.mjs';
import { descendants, memory as held } from './processes.mjs';
import { Server, separateRunner, standingBy, trestle } from './trestle.mjs';

const SOURCE = `import { existsSync, writeFileSync } from 'node:fs';
export default async function run(input) {
  writeFileSync(input.at + '.waits', '');
  while (!existsSync(input.at + '.end')) await new Promise((resolve) => setTimeout(resolve, 20));
  return null;
}
`;

/** Resident memory when it has come to rest: the most of some looks. */
async function resident(pid) {
  const looks = [];
  for (let n = 0; n < 10; n += 1) {
    looks.push(held(pid).resident);
    await pause(100);
  }
  return Math.max(...looks);
}

async function idle() {
  const server = await Server.up(['--no-runner']);
  let runner;
  try {
    await pause(1000);
    sizeLine('memory', 'idle server, resident', await resident(server.pid), 40);
    runner = await separateRunner(server, ['--prestart', '0']);
    await pause(1000);
    sizeLine('memory', 'idle runner, resident', await resident(runner.pid), 15);
    const at = join(server.home, 'waiting');
    const run = await server.trigger(server.deploy('waits', SOURCE), { at });
    await until('a program that waits', () => (existsSync(`${at}.waits`) ? true : undefined));
    await pause(1000);
    const [session] = descendants(runner.pid).filter(({ args }) => args.includes('__run'));
    sizeLine('memory', 'run process without its program, resident', await resident(session.pid), 15);
    await server.request('POST', `/v1/runs/${run}/cancel`, {});
    await server.follow(run);
  } finally {
    await runner?.stop();
    await server.stop();
  }
}

async function standingSlot() {
  const server = await Server.up(['--prestart', '1']);
  try {
    await standingBy(server.pid);
    const slot = descendants(server.pid).filter(({ args }) => args.includes('__run') || args.includes('--warm'));
    const all = slot.map(({ pid }) => held(pid));
    const sum = (of) => all.map(of).reduce((total, each) => total + each, 0);
    sizeLine('memory', 'a prestarted slot with its Node, resident', sum(({ resident: each }) => each));
    note(`its proportional part: ${sum(({ proportional }) => proportional).toFixed(1)} MB`);
  } finally {
    await server.stop();
  }
}

async function help() {
  const { floors, subjects } = await pairs(nodeFloor, () => {
    const begin = performance.now();
    const { status, stdout } = spawnSync(trestle, ['--help'], { encoding: 'utf8' });
    const time = performance.now() - begin;
    check(status === 0 && stdout.includes('Usage'), 'trestle --help failed');
    return time;
  });
  timeLine('memory', 'trestle --help', median(subjects), median(floors), 20);
}

const freePort = () =>
  new Promise((resolve) => {
    const probe = createServer();
    probe.listen(0, '127.0.0.1', () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });

/** Whether somebody accepts a connection there. */
const accepts = (port) =>
  new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('connect', () => { socket.destroy(); resolve(true); });
    socket.once('error', () => resolve(false));
  });

async function untilListening(data) {
  const port = await freePort();
  const begin = performance.now();
  const child = spawn(trestle, ['up', '--no-runner', '--data', data, '--listen', `127.0.0.1:${port}`], { stdio: 'ignore', env: { ...process.env, TRESTLE_NODE: node, TRESTLE_LOG: 'warn' } });
  const ended = new Promise((resolve) => { child.on('exit', resolve); });
  while (!(await accepts(port))) {
    check(child.exitCode === null, 'trestle up ended before it listened');
    check(performance.now() - begin < 30_000, 'trestle up did not listen within 30 s');
    await pause(1);
  }
  const time = performance.now() - begin;
  child.kill('SIGTERM');
  await ended;
  return time;
}

async function listening() {
  const home = mkdtempSync(join(tmpdir(), 'trestle-listening-'));
  try {
    const first = [];
    const { floors, subjects } = await pairs(nodeFloor, async (index) => {
      const data = join(home, String(index));
      first.push(await untilListening(data));
      return untilListening(data);
    });
    timeLine('memory', 'server start to listening, new data directory', median(first), median(floors), 60);
    timeLine('memory', 'server start to listening, again', median(subjects), median(floors), 60);
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

export async function memory() {
  await idle();
  await standingSlot();
  await help();
  await listening();
}

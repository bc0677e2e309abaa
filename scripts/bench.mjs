// The measurements of scripts/bench. Each verifies its results before it reports a time.
import { spawn, spawnSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const [node, ...names] = process.argv.slice(2);
const trestle = process.env.TRESTLE_BIN;
const PAIRS = 40;
let missed = false;

const median = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
const percentile = (values, p) => [...values].sort((a, b) => a - b)[Math.min(values.length - 1, Math.ceil(values.length * p) - 1)];
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function report(name, what, value, floor, bound) {
  const ratio = value / floor;
  const verdict = bound === null ? '-' : ratio <= bound ? 'ok' : 'MISS';
  if (verdict === 'MISS') missed = true;
  const cells = [name.padEnd(6), what.padEnd(46), `${value.toFixed(1)} ms`.padStart(10), `${floor.toFixed(1)} ms`.padStart(10)];
  console.log([...cells, ratio.toFixed(2).padStart(6), (bound === null ? '-' : `≤ ${bound}`).padStart(6), verdict].join('  '));
}

function fail(message) {
  console.error(`not measurable: ${message}`);
  process.exitCode = 2;
  throw new Error(message);
}

function floor() {
  const begin = performance.now();
  const { status } = spawnSync(node, ['-e', '0'], { stdio: 'ignore' });
  if (status !== 0) fail('node -e 0 failed');
  return performance.now() - begin;
}

class Server {
  constructor(flags) {
    this.home = mkdtempSync(join(tmpdir(), 'trestle-bench-'));
    this.data = join(this.home, 'data');
    const args = ['up', '--data', this.data, '--listen', '127.0.0.1:0', ...flags];
    console.error(`settings: trestle ${args.slice(3).join(' ')} (TRESTLE_NODE=${node})`);
    this.agent = new http.Agent({ keepAlive: true });
    this.child = spawn(trestle, args, { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, TRESTLE_NODE: node, TRESTLE_LOG: 'warn' } });
    this.log = '';
    this.child.stderr.on('data', (chunk) => { this.log += chunk; });
  }

  async ready() {
    for (let tries = 0; tries < 400; tries += 1) {
      if (this.child.exitCode !== null) fail(`trestle up ended: ${this.log}`);
      if (existsSync(join(this.data, 'server.json')) && existsSync(join(this.data, 'admin-token'))) {
        this.url = new URL(JSON.parse(readFileSync(join(this.data, 'server.json'), 'utf8')).url);
        this.token = readFileSync(join(this.data, 'admin-token'), 'utf8').trim();
        return this;
      }
      await pause(25);
    }
    return fail(`trestle up did not start: ${this.log}`);
  }

  request(method, path, body) {
    return new Promise((resolve, reject) => {
      const text = body === undefined ? undefined : JSON.stringify(body);
      const headers = { authorization: `Bearer ${this.token}` };
      if (text !== undefined) Object.assign(headers, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) });
      const request = http.request({ agent: this.agent, host: this.url.hostname, port: this.url.port, method, path, headers }, (answer) => {
        let received = '';
        answer.setEncoding('utf8');
        answer.on('data', (chunk) => { received += chunk; });
        answer.on('end', () => (answer.statusCode < 300 ? resolve(received ? JSON.parse(received) : null) : reject(new Error(`${method} ${path}: ${answer.statusCode} ${received}`))));
      });
      request.on('error', reject);
      request.end(text);
    });
  }

  // Resolves at the terminal status event of a run, with its status and output.
  follow(run) {
    return new Promise((resolve, reject) => {
      const headers = { authorization: `Bearer ${this.token}`, accept: 'text/event-stream' };
      const request = http.get({ agent: this.agent, host: this.url.hostname, port: this.url.port, path: `/v1/runs/${run}/stream`, headers }, (answer) => {
        let received = '';
        let output;
        answer.setEncoding('utf8');
        answer.on('data', (chunk) => {
          received += chunk;
          for (let end = received.indexOf('\n\n'); end >= 0; end = received.indexOf('\n\n')) {
            const data = received.slice(0, end).split('\n').find((line) => line.startsWith('data: '));
            received = received.slice(end + 2);
            if (!data) continue;
            const event = JSON.parse(data.slice(6));
            if (event.kind === 'output') output = event.value;
            if (event.kind === 'run_status' && ['completed', 'failed', 'cancelled'].includes(event.status)) {
              resolve({ status: event.status, output, error: event.error });
              answer.destroy();
            }
          }
        });
        answer.on('error', reject);
      });
      request.on('error', reject);
    });
  }

  deploy(slug, source) {
    const directory = join(this.home, slug);
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, 'workflow.jsonc'), JSON.stringify({ slug, triggers: [{ kind: 'manual' }] }));
    writeFileSync(join(directory, 'index.mjs'), source);
    const { status, stdout, stderr } = spawnSync(trestle, ['deploy', directory, '--data', this.data, '--json'], { encoding: 'utf8' });
    if (status !== 0) fail(`deploy failed: ${stderr}`);
    return JSON.parse(stdout).workflowId;
  }

  async stop() {
    this.agent.destroy();
    const ended = new Promise((resolve) => { this.child.on('exit', resolve); });
    this.child.kill('SIGTERM');
    await ended;
    rmSync(this.home, { recursive: true, force: true });
  }
}

// A no-op run from the trigger to its terminal event at an event-stream client.
async function start() {
  for (const [what, flags, bound, rest] of [
    ['no-op run, prestarted: trigger to terminal event', ['--slots', '1', '--prestart', '1'], null, 250],
    ['no-op run, cold: trigger to terminal event', ['--slots', '1', '--prestart', '0'], null, 20],
  ]) {
    const server = await new Server(flags).ready();
    try {
      const me = await server.request('GET', '/v1/me');
      const slug = me.memberships[0].slug;
      const workflows = [];
      for (let n = 0; n < 10; n += 1) {
        workflows.push(server.deploy(`no-op-${n}`, `export default (input) => ({ nonce: input.nonce, pid: process.pid, n: ${n} });\n`));
      }
      const floors = [];
      const times = [];
      const pids = new Set();
      for (let pair = 0; pair < PAIRS + 5; pair += 1) {
        await pause(rest);
        const floorTime = floor();
        const nonce = randomUUID();
        const begin = performance.now();
        const { run } = await server.request('POST', `/v1/orgs/${slug}/workflows/${workflows[pair % 10]}/runs`, { input: { nonce } });
        const end = await server.follow(run.id);
        const time = performance.now() - begin;
        if (end.status !== 'completed') fail(`run ended ${end.status}: ${JSON.stringify(end.error)}`);
        if (end.output.nonce !== nonce || end.output.n !== pair % 10) fail(`wrong output ${JSON.stringify(end.output)}`);
        if (pids.has(end.output.pid)) fail(`process ${end.output.pid} served twice`);
        pids.add(end.output.pid);
        // The first pairs fill caches.
        if (pair >= 5) {
          floors.push(floorTime);
          times.push(time);
        }
      }
      report('start', what, median(times), median(floors), bound);
      console.error(`  p90 ${percentile(times, 0.9).toFixed(1)} ms over ${times.length} pairs`);
    } finally {
      await server.stop();
    }
  }
}

const benches = { start };
const unknown = names.filter((name) => !(name in benches));
if (unknown.length > 0) {
  console.error(`unknown: ${unknown.join(', ')}; there are: ${Object.keys(benches).join(', ')}`);
  process.exit(2);
}
const floors = Array.from({ length: 15 }, floor);
console.log(`node ${process.version} at ${node}: node -e 0 median ${median(floors).toFixed(1)} ms`);
console.log('name    what                                                value       floor   ratio   bound');
try {
  for (const name of names) await benches[name]();
  process.exitCode = missed ? 1 : 0;
} catch (error) {
  console.error(error.message);
  process.exitCode = 2;
}

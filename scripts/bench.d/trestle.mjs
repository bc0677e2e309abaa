// A server as `trestle up` starts it, a separate runner, and the client that drives them.
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, openSync, closeSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import http from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { NotMeasurable, check, node, note, pause, until } from './measure.mjs';
import { descendants, processorTime } from './processes.mjs';

export const trestle = process.env.TRESTLE_BIN;
const ENDS = ['completed', 'failed', 'cancelled'];
const shown = new Set();

/** A process of Trestle with its log in a file, ended with `stop`. */
class Program {
  constructor(home, name, args, env = {}) {
    this.args = args;
    this.logFile = join(home, `${name}.log`);
    const log = openSync(this.logFile, 'w');
    this.env = { TRESTLE_NODE: node, TRESTLE_LOG: 'warn', ...env };
    const settings = `settings: trestle ${args.map((arg) => arg.replace(home, '…')).join(' ')} · ${Object.entries(this.env).map(([key, value]) => `${key}=${value}`).join(' ')}`;
    // Each once: several servers with the same settings are the rule.
    if (!shown.has(settings)) note(settings);
    shown.add(settings);
    this.child = spawn(trestle, args, { stdio: ['ignore', log, log], env: { ...process.env, ...this.env } });
    this.pid = this.child.pid;
    closeSync(log);
    this.ended = new Promise((resolve) => { this.child.on('exit', resolve); });
  }

  log() {
    return readFileSync(this.logFile, 'utf8');
  }

  alive() {
    check(this.child.exitCode === null, `trestle ${this.args[0]} ended: ${this.log().slice(-2000)}`);
  }

  async stop() {
    this.child.kill('SIGTERM');
    await this.ended;
  }
}

/** Waits until the slots that shall stand by below `pid` do: their interpreters have loaded everything and use no time. */
export async function standingBy(pid, count = 1) {
  const look = () => descendants(pid).filter(({ args }) => args.includes('--warm')).map((found) => found.pid);
  await until('standing by', async () => {
    const before = look();
    if (before.length < count) return undefined;
    try {
      const used = before.map(processorTime);
      await pause(60);
      const quiet = before.every((each, index) => used[index] > 5 && processorTime(each) === used[index]);
      return quiet && look().length === before.length ? true : undefined;
    } catch {
      return undefined; // one of them was taken in between
    }
  }, { every: 20 });
}

export class Server extends Program {
  /** `flags` as for `trestle up`; the data directory is fresh. */
  static async up(flags = [], env = {}) {
    const home = mkdtempSync(join(tmpdir(), 'trestle-bench-'));
    const server = new Server(home, 'server', ['up', '--data', join(home, 'data'), '--listen', '127.0.0.1:0', ...flags], env);
    server.home = home;
    server.data = join(home, 'data');
    server.agent = new http.Agent({ keepAlive: true });
    await server.ready();
    return server;
  }

  async ready() {
    const files = ['server.json', 'admin-token'].map((name) => join(this.data, name));
    await until('listening', () => {
      this.alive();
      return files.every(existsSync) ? true : undefined;
    });
    this.url = new URL(JSON.parse(readFileSync(files[0], 'utf8')).url);
    this.token = readFileSync(files[1], 'utf8').trim();
    this.org = (await this.request('GET', '/v1/me')).memberships[0].slug;
  }

  options(method, path, headers = {}) {
    return { agent: this.agent, host: this.url.hostname, port: this.url.port, method, path, headers: { authorization: `Bearer ${this.token}`, ...headers } };
  }

  request(method, path, body) {
    return new Promise((resolve, reject) => {
      const text = body === undefined ? undefined : JSON.stringify(body);
      const headers = text === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
      const request = http.request(this.options(method, path, headers), (answer) => {
        const received = [];
        answer.on('data', (chunk) => received.push(chunk));
        answer.on('end', () => {
          const answered = Buffer.concat(received).toString('utf8');
          if (answer.statusCode >= 300) reject(new NotMeasurable(`${method} ${path}: ${answer.statusCode} ${answered}`));
          else resolve(answered === '' ? null : JSON.parse(answered));
        });
        answer.on('error', reject);
      });
      request.on('error', reject);
      request.end(text);
    });
  }

  deploy(slug, source, descriptor = {}) {
    const directory = join(this.home, slug);
    mkdirSync(directory, { recursive: true });
    writeFileSync(join(directory, 'workflow.jsonc'), JSON.stringify({ slug, triggers: [{ kind: 'manual' }], ...descriptor }));
    writeFileSync(join(directory, 'index.mjs'), source);
    const { status, stdout, stderr } = spawnSync(trestle, ['deploy', directory, '--data', this.data, '--json'], { encoding: 'utf8' });
    check(status === 0, `deploy failed: ${stderr}`);
    return JSON.parse(stdout).workflowId;
  }

  async trigger(workflow, input) {
    const { run } = await this.request('POST', `/v1/orgs/${this.org}/workflows/${workflow}/runs`, { input });
    return run.id;
  }

  /** Resolves at the terminal status event of a run, with its status and output. */
  follow(run) {
    return new Promise((resolve, reject) => {
      const request = http.get(this.options('GET', `/v1/runs/${run}/stream?channels=lifecycle,output`, { accept: 'text/event-stream' }), (answer) => {
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
            if (event.kind === 'run_status' && ENDS.includes(event.status)) {
              resolve({ run, status: event.status, output, error: event.error });
              answer.destroy();
              return;
            }
          }
        });
        answer.on('error', reject);
        answer.on('close', () => reject(new NotMeasurable(`the stream of ${run} ended without a terminal status`)));
      });
      request.on('error', reject);
    });
  }

  /** Starts a run and waits for its terminal event. */
  async execute(workflow, input) {
    return this.completed(await this.follow(await this.trigger(workflow, input)));
  }

  completed(end) {
    check(end.status === 'completed', `run ${end.run} ended ${end.status}: ${JSON.stringify(end.error)}`);
    return end;
  }

  async events(run) {
    return (await this.request('GET', `/v1/runs/${run}/events`)).events.map(({ event }) => event);
  }

  async stop() {
    this.agent.destroy();
    await super.stop();
    rmSync(this.home, { recursive: true, force: true });
  }
}

/** A runner of its own process, registered with `server`. */
export async function separateRunner(server, flags = [], env = {}) {
  const url = server.url.origin;
  const tool = (...args) => {
    const { status, stdout, stderr } = spawnSync(trestle, args, { encoding: 'utf8' });
    check(status === 0, `trestle ${args.slice(0, 2).join(' ')} failed: ${stderr}`);
    return stdout;
  };
  const { registrationToken: token } = await server.request('POST', `/v1/orgs/${server.org}/runner-pools/default/registration-tokens`, {});
  const identity = join(server.home, 'identity');
  tool('runner', 'register', '--url', url, '--token', token, '--name', 'bench', '--identity-dir', identity);
  const runner = new Program(server.home, 'runner', ['runner', 'start', '--url', url, '--host', '--identity-dir', identity, ...flags], env);
  await until('a runner that is online', () => {
    runner.alive();
    return runner.log().includes('online') ? true : undefined;
  });
  return runner;
}

/** The scripted model of the tests, as a process. */
export async function scriptedModel(home, script) {
  const binary = process.env.TRESTLE_MODEL_BIN;
  const [scriptFile, ready] = [join(home, 'model.json'), join(home, 'model-ready')];
  writeFileSync(scriptFile, JSON.stringify(script));
  const child = spawn(binary, ['--script', scriptFile, '--ready-file', ready], { stdio: 'ignore' });
  const ended = new Promise((resolve) => { child.on('exit', resolve); });
  await until('a model that listens', () => {
    check(child.exitCode === null, `${binary} ended`);
    return existsSync(ready) ? true : undefined;
  });
  return {
    url: readFileSync(ready, 'utf8').trim(),
    stop: async () => {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

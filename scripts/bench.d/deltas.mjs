// deltas: one agent turn of 5,000 deltas at full speed. Processor time of server and run process for the turn, against
// a whole Node process that fetches, parses and concatenates the same stream.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { check, median, node, note, pairs, pause, ratioLine, until } from './measure.mjs';
import { descendants, processorTime } from './processes.mjs';
import { Server, scriptedModel } from './trestle.mjs';

const DELTAS = 5000;
const PIECE = 'tick tock ';
const PROMPT = 'Count the ticks.';
const SOURCE = `import { agent } from '@trestle/workflow';
import { createHash } from 'node:crypto';
import { existsSync, writeFileSync } from 'node:fs';
const appears = async (file) => { while (!existsSync(file)) await new Promise((resolve) => setTimeout(resolve, 10)); };
export default async function run(input) {
  writeFileSync(input.at + '.waits', '');
  await appears(input.at + '.go');
  const text = await agent(${JSON.stringify(PROMPT)});
  writeFileSync(input.at + '.turned', '');
  await appears(input.at + '.end');
  return { length: text.length, sha256: createHash('sha256').update(text).digest('hex') };
}
`;

const expected = PIECE.repeat(DELTAS);
const sha256 = (text) => createHash('sha256').update(text).digest('hex');

/** Processor time of the processes once they use none any more. */
async function settled(pids) {
  let before = pids.map(processorTime).reduce((sum, each) => sum + each, 0);
  for (let quiet = 0; quiet < 3; ) {
    await pause(100);
    const now = pids.map(processorTime).reduce((sum, each) => sum + each, 0);
    quiet = now - before < 0.5 ? quiet + 1 : 0;
    before = now;
  }
  return before;
}

async function turn(server, workflow, round) {
  const at = join(server.home, `turn-${round}`);
  const run = await server.trigger(workflow, { at });
  await until('a program that waits', () => (existsSync(`${at}.waits`) ? true : undefined));
  const session = descendants(server.pid).filter(({ args }) => args.includes('__run')).map(({ pid }) => pid);
  check(session.length === 1, `${session.length} run processes`);
  const pids = [server.pid, ...session];
  const before = await settled(pids);
  const begin = performance.now();
  writeFileSync(`${at}.go`, '');
  await until('the turn', () => (existsSync(`${at}.turned`) ? true : undefined));
  const wall = performance.now() - begin;
  const used = (await settled(pids)) - before;
  writeFileSync(`${at}.end`, '');
  const { output } = server.completed(await server.follow(run));
  check(output.length === expected.length && output.sha256 === sha256(expected), 'the program did not get the text that the model sent');
  const events = await server.events(run);
  const text = events.filter(({ kind }) => kind === 'text_delta').map((event) => event.text).join('');
  check(text === expected, 'the events are not the text that the model sent');
  return { used, wall };
}

export async function deltas() {
  const home = mkdtempSync(join(tmpdir(), 'trestle-model-'));
  const model = await scriptedModel(home, { turns: [{ match: { contains: PROMPT }, repeat: { text: PIECE, times: DELTAS } }] });
  // One run process at a time, so that none of another run is counted.
  const server = await Server.up(['--prestart', '0'], {
    TRESTLE_MODEL: 'scripted',
    TRESTLE_MODEL_PROVIDER: 'openai_compatible',
    TRESTLE_MODEL_URL: `${model.url}/v1`,
    TRESTLE_MODEL_KEY: 'scripted',
  });
  const program = fileURLToPath(new URL('./floors/stream.mjs', import.meta.url));
  const floor = () => {
    const { status, stdout, stderr } = spawnSync(node, [program, `${model.url}/v1/chat/completions`, PROMPT], { encoding: 'utf8' });
    check(status === 0, `the floor program failed: ${stderr}`);
    const found = JSON.parse(stdout);
    check(found.sha256 === sha256(expected), 'the floor program did not get the text that the model sent');
    return found.processor;
  };
  try {
    const workflow = server.deploy('ticks', SOURCE);
    const walls = [];
    const { floors, subjects } = await pairs(floor, async (round) => {
      const { used, wall } = await turn(server, workflow, round);
      walls.push(wall);
      return used;
    });
    ratioLine('deltas', `${DELTAS} deltas: processor time, server + run process`, median(subjects), median(floors), 1);
    note(`the turn took ${median(walls).toFixed(0)} ms of wall time; every delta came to the program and to the events, in order`);
  } finally {
    await server.stop();
    await model.stop();
    rmSync(home, { recursive: true, force: true });
  }
}

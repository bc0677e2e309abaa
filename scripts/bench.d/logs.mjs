// logs: 10,000 lines of console.log, from the first one to the run's end with all of them stored, against the same
// lines through a pipe into a file.
import { spawn } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beyondLine, check, floorMedian, median, node, note, pairs, wall } from './measure.mjs';
import { Server, standingBy } from './trestle.mjs';

const LINES = 10_000;
const SOURCE = `export default function run() {
  const began = performance.timeOrigin + performance.now();
  for (let n = 0; n < ${LINES}; n += 1) console.log('line ' + n + ' of a program that has something to say');
  return { began };
}
`;
const lineOf = (n) => `line ${n} of a program that has something to say`;

/** The lines in their order; undefined when they are whole. */
function firstWrong(text) {
  const lines = text.split('\n');
  for (let n = 0; n < LINES; n += 1) if (lines[n] !== lineOf(n)) return `line ${n} is ${JSON.stringify(lines[n])}`;
  return lines.length === LINES + 1 && lines[LINES] === '' ? undefined : `${lines.length - 1} lines`;
}

async function throughPipe(home, program) {
  const file = join(home, 'lines');
  const target = openSync(file, 'w');
  const copy = spawn('cat', [], { stdio: ['pipe', target, 'inherit'] });
  closeSync(target);
  const source = spawn(node, [program, String(LINES)], { stdio: ['ignore', copy.stdin, 'pipe'] });
  copy.stdin.destroy(); // the program holds the only end
  let began = '';
  source.stderr.on('data', (chunk) => { began += chunk; });
  const drained = new Promise((resolve) => source.on('close', resolve));
  await new Promise((resolve) => copy.on('exit', resolve));
  const time = wall();
  await drained;
  const wrong = firstWrong(readFileSync(file, 'utf8'));
  check(wrong === undefined, `the floor's file is not whole: ${wrong}`);
  return time - Number(began);
}

async function throughRun(server, workflow) {
  const run = await server.trigger(workflow, null);
  const { output } = server.completed(await server.follow(run));
  const time = wall() - output.began;
  const events = await server.events(run);
  const frames = events.filter(({ kind, stream }) => kind === 'program_output' && stream === 'stdout');
  const wrong = firstWrong(frames.map(({ text }) => (text.endsWith('\n') ? text : `${text}\n`)).join(''));
  check(wrong === undefined, `the stored events are not whole: ${wrong}`);
  return time;
}

export async function logs() {
  const home = mkdtempSync(join(tmpdir(), 'trestle-lines-'));
  const program = fileURLToPath(new URL('./floors/lines.mjs', import.meta.url));
  const server = await Server.up();
  try {
    const workflow = server.deploy('talkative', SOURCE);
    const { floors, subjects } = await pairs(
      () => throughPipe(home, program),
      async () => {
        await standingBy(server.pid);
        return throughRun(server, workflow);
      },
    );
    beyondLine('logs', `${LINES} lines: the first one to all stored`, median(subjects), median(floors), floorMedian(), 100);
    note('none lost, order kept; the time includes the end of the run');
  } finally {
    await server.stop();
    rmSync(home, { recursive: true, force: true });
  }
}

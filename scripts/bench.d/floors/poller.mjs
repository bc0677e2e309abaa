// Holds one parked poll for each runner token, over bare sockets, and claims what is offered.
//   node poller.mjs HOST PORT TOKENS.json
// stdout, one JSON object a line: {"parked": N} once all are, then {"run", "at"} for each offer, `at` in milliseconds since
// 1970 when its first bytes came.
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';

const [host, port, file] = process.argv.slice(2);
const tokens = JSON.parse(readFileSync(file, 'utf8'));
const declaration = JSON.stringify({ contract_version: 1, runner_version: '0.0.0-bench' });
const wall = () => performance.timeOrigin + performance.now();
let parked = 0;

const request = (token, path) =>
  `POST ${path} HTTP/1.1\r\nhost: ${host}:${port}\r\nauthorization: Bearer ${token}\r\ncontent-type: application/json\r\ncontent-length: ${declaration.length}\r\n\r\n${declaration}`;

/** The body of a whole answer, or undefined as long as it is not whole. */
function bodyOf(text) {
  const end = text.indexOf('\r\n\r\n');
  if (end < 0) return undefined;
  const length = Number(/^content-length: (\d+)/im.exec(text.slice(0, end))?.[1]);
  return text.length >= end + 4 + length ? text.slice(end + 4, end + 4 + length) : undefined;
}

function poller(token) {
  let received = '';
  let at;
  let claiming = false;
  const socket = connect({ host, port: Number(port), noDelay: true });
  socket.setEncoding('latin1');
  const poll = () => socket.write(request(token, '/runner/v1/pool/poll'));
  socket.on('connect', () => {
    poll();
    parked += 1;
    if (parked === tokens.length) process.stdout.write(`${JSON.stringify({ parked })}\n`);
  });
  socket.on('data', (chunk) => {
    at ??= wall();
    received += chunk;
    const body = bodyOf(received);
    if (body === undefined) return;
    const came = at;
    const ok = /^HTTP\/1\.1 200/.test(received);
    received = '';
    at = undefined;
    if (claiming) return; // its runner would work now
    if (!ok) throw new Error(`a poll was answered ${body}`);
    const { assignment } = JSON.parse(body);
    if (!assignment) {
      poll();
      return;
    }
    process.stdout.write(`${JSON.stringify({ run: assignment.run_id, at: came })}\n`);
    claiming = true;
    socket.write(request(token, `/runner/v1/pool/assignments/${encodeURIComponent(assignment.assignment_id)}/claim`));
  });
  socket.on('error', (error) => { throw error; });
}

// A few at a time: the server's backlog is bounded.
let next = 0;
const more = () => {
  for (let n = 0; n < 100 && next < tokens.length; n += 1) poller(tokens[next++]);
  if (next < tokens.length) setTimeout(more, 20);
};
more();

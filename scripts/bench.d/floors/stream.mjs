// The floor of the bench `deltas`: fetches a chat completion as a stream, parses it, concatenates its text.
import { createHash } from 'node:crypto';

const [url, prompt] = process.argv.slice(2);
const answer = await fetch(url, {
  method: 'POST',
  headers: { authorization: 'Bearer scripted', 'content-type': 'application/json' },
  body: JSON.stringify({ model: 'scripted', stream: true, messages: [{ role: 'user', content: prompt }] }),
});
const decoder = new TextDecoder();
let rest = '';
let text = '';
for await (const chunk of answer.body) {
  rest += decoder.decode(chunk, { stream: true });
  const lines = rest.split('\n');
  rest = lines.pop();
  for (const line of lines) {
    if (line.startsWith('data: {')) text += JSON.parse(line.slice(6)).choices[0]?.delta?.content ?? '';
  }
}
const { user, system } = process.cpuUsage();
console.log(JSON.stringify({ sha256: createHash('sha256').update(text).digest('hex'), processor: (user + system) / 1000 }));

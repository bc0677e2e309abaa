// What the kernel says about processes: who started whom, memory, processor time.
import { readFileSync, readdirSync } from 'node:fs';

function read(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined; // it is gone
  }
}

const argumentsOf = (pid) => (read(`/proc/${pid}/cmdline`) ?? '').split('\0').slice(0, -1);

function parentOf(pid) {
  const stat = read(`/proc/${pid}/stat`);
  return stat === undefined ? undefined : Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
}

/** Every process below `root`, with its arguments. */
export function descendants(root) {
  const all = readdirSync('/proc').filter((name) => /^\d+$/.test(name)).map(Number);
  const parents = new Map(all.map((pid) => [pid, parentOf(pid)]));
  const below = (pid) => {
    for (let at = parents.get(pid); at !== undefined && at > 1; at = parents.get(at)) if (at === root) return true;
    return false;
  };
  return all.filter(below).map((pid) => ({ pid, parent: parents.get(pid), args: argumentsOf(pid) }));
}

/** Processor time of all threads of a process so far, in milliseconds. */
export function processorTime(pid) {
  let nanoseconds = 0;
  for (const thread of readdirSync(`/proc/${pid}/task`)) {
    nanoseconds += Number((read(`/proc/${pid}/task/${thread}/schedstat`) ?? '0').split(' ')[0]);
  }
  return nanoseconds / 1e6;
}

/** Resident and proportional memory in megabytes (10⁶ bytes). */
export function memory(pid) {
  const field = (path, name) => Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(read(path) ?? '')?.[1] ?? NaN) * 1024 / 1e6;
  return { resident: field(`/proc/${pid}/status`, 'VmRSS'), proportional: field(`/proc/${pid}/smaps_rollup`, 'Pss') };
}

// The floor of the bench `logs`: as many lines to standard output; on standard error, when it began.
const count = Number(process.argv[2]);
const began = performance.timeOrigin + performance.now();
for (let n = 0; n < count; n += 1) console.log('line ' + n + ' of a program that has something to say');
process.stderr.write(String(began));

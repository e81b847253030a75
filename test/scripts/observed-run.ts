// A program of its own that is looked at from outside: actors of every kind, one that waits, one that is blocked when told to be.
import { init, listActors, ready, shutdown, spawn } from '../../runtime/index.ts';
import { Counter, Probe } from '../runtime/fixtures/actors.ts';

delete process.env.NODE_OPTIONS;
await init({ onOutput: () => {} });
const gate = spawn(Probe, { name: 'gate' });
const talker = spawn(Probe, { name: 'talker', isolation: 'process' });
const others = [spawn(Counter, { name: 'light', isolation: 'shared' }), spawn(Counter, { name: 'threaded', isolation: 'thread' })];
await Promise.all([gate, talker, ...others].map((handle) => ready(handle)));
await Promise.all(others.map((counter) => counter.add(1)));
const waiting = [gate.block(), ...Array.from({ length: 150 }, (_, i) => gate.echo(i))];
for (const call of waiting) call.catch(() => {});
await talker.spin(0);

process.on('message', async (word: string) => {
  if (word === 'talk') for (let i = 0; i < 3; i++) await talker.spin(0);
  if (word === 'block') talker.spin(60_000).catch(() => {});
  if (word === 'end') await shutdown({ timeoutMs: 1000 }).finally(() => process.disconnect());
  else process.send!({ done: word });
});
process.send!({ done: 'start', pids: Object.fromEntries(listActors().map(({ name, pid }) => [name, pid])) });

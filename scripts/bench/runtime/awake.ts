// Keeps the cores awake: one spinning process a core at the lowest priority there is. Waking a halted core costs tens of microseconds on a
// virtual machine, so latency is measured with and without.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { availableParallelism } from 'node:os';

// Ends with the process that started it, however that ends.
const SPIN = `const parent = ${process.pid}; for (;;) { for (let i = 0; i < 2e7; i++); if (process.ppid !== parent) process.exit(); }`;

/** SCHED_IDLE gives way to anything at once; niceness, where there is no chrt, nearly so. */
function lowest(): readonly string[] {
  return spawnSync('chrt', ['-i', '0', 'true']).status === 0 ? ['chrt', '-i', '0'] : ['nice', '-n', '19'];
}

/** Runs `work` with the cores awake. */
export async function awake<T>(work: () => Promise<T>): Promise<T> {
  const [command, ...args] = [...lowest(), process.execPath, '-e', SPIN];
  const spinners: ChildProcess[] = [];
  try {
    for (let i = 0; i < availableParallelism(); i++) spinners.push(spawn(command!, args, { stdio: 'ignore' }));
    await Promise.all(spinners.map((child) => new Promise((done, failed) => child.once('spawn', done).once('error', failed))));
    await new Promise((done) => setTimeout(done, 300)); // node itself has to start
    return await work();
  } finally {
    await Promise.all(
      spinners.map((child) => {
        if (child.pid === undefined || child.exitCode !== null || child.signalCode !== null) return undefined;
        const gone = new Promise((done) => child.once('exit', done));
        child.kill('SIGKILL');
        return gone;
      }),
    );
  }
}

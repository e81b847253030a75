// The CUDA kernels without a GPU: their unmodified sources run on the emulated machine. Each program of cuda.emulated/ is built once (kept in
// build-emulation/) and speaks TAP.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import t from 'tap';
import { emulation } from './emulation.ts';

const run = promisify(execFile);

t.setTimeout(900_000);
for (const program of ['machine']) {
  t.test(program, { timeout: 900_000 }, async (t) => {
    const [built] = await emulation(program);
    const { stdout } = await run(built!, [], { maxBuffer: 1 << 26, timeout: 850_000 }).catch((error: { stdout?: string }) => ({
      stdout: `${error.stdout ?? ''}\nnot ok - ${program} failed`,
    }));
    const lines = stdout.split('\n').filter((line) => /^(not )?ok\b/.test(line));
    t.ok(lines.length > 0, 'there are checks');
    for (const line of lines) t.ok(line.startsWith('ok'), line.replace(/^(not )?ok \d* ?- /, ''));
  });
}

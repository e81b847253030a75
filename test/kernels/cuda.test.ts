// The CUDA kernels without a GPU: their unmodified sources run on the emulated machine. Each program of cuda.emulated/ is built once (kept in
// build-emulation/) and speaks TAP.
import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';

const run = promisify(execFile);
const root = process.cwd();

for (const program of ['machine']) {
  t.test(program, { timeout: 240_000 }, async (t) => {
    const built = await run(process.execPath, [join(root, 'scripts/build-emulation.mjs'), program], { cwd: root });
    const { stdout } = await run(built.stdout.trim(), { maxBuffer: 1 << 26 }).catch((error: { stdout?: string }) => ({
      stdout: `${error.stdout ?? ''}\nnot ok - ${program} failed`,
    }));
    const lines = stdout.split('\n').filter((line) => /^(not )?ok\b/.test(line));
    t.ok(lines.length > 0, 'there are checks');
    for (const line of lines) t.ok(line.startsWith('ok'), line.replace(/^(not )?ok \d* ?- /, ''));
  });
}

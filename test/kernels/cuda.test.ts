// The CUDA kernels without a GPU: their unmodified sources run on the emulated machine. Each program of cuda.emulated/ is built once (kept in
// build-emulation/) and speaks TAP; `operators` runs the CPU backend's operator tests, a suite at a time: the short ones always, all of them
// (four minutes) where SINKFLEX_EMULATED_SUITES is `all`, as in `npm run test:cuda`.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import t from 'tap';
import { emulation } from './emulation.ts';

const run = promisify(execFile);

t.setTimeout(1_800_000);
const short = ['elementwise', 'moe'];
const suites = process.env.SINKFLEX_EMULATED_SUITES === 'all' ? [...short, 'linear', 'attention', 'variants', 'vocabulary'] : short;
const programs = [['machine'], ['products'], ...suites.map((suite) => ['operators', suite])];
for (const [program, ...args] of programs) check([program, ...args].join(': '), program!, async () => args);
// The backend opens cuBLASLt at run time: here one that checks what it is given, and multiplies on the CPU.
const standIn = async (): Promise<string[]> => emulation('cublaslt-stand-in');
check('products by cuBLASLt', 'products', standIn);
check('cuBLASLt of another version', 'products', standIn, { STAND_IN_VERSION: '150000' });

function check(name: string, program: string, words: () => Promise<string[]>, variables = {}): void {
  t.test(name, { timeout: 900_000 }, async (t) => {
    const [built] = await emulation(program);
    const args = await words();
    const { stdout } = await run(built!, args, { env: { ...process.env, ...variables }, maxBuffer: 1 << 26, timeout: 850_000 }).catch(
      (error: { stdout?: string }) => ({
        stdout: `${error.stdout ?? ''}\nnot ok - ${program} failed`,
      }),
    );
    const lines = stdout.split('\n').filter((line) => /^((not )?ok|FAILED)\b/.test(line));
    t.ok(lines.length > 0, 'there are checks');
    for (const line of lines) t.ok(line.startsWith('ok'), line.replace(/^(not )?ok \d* ?- /, ''));
  });
}

// The owner of some sandboxes, in a process of its own: says when they stand, and is then killed or asks whether they hold.

import { makeSandboxProvider } from '../../actors/sandbox/index.ts';
import { isSinkflexError } from '../../kernels/index.ts';

const say = (what: unknown) => process.stdout.write(`${JSON.stringify(what)}\n`);

if (process.argv[2] === 'hold') {
  const provider = makeSandboxProvider('local', { warm: 1 });
  const two = await Promise.all([provider.create(), provider.create()]);
  // Busy when the end comes, with processes that ignore what can be ignored.
  for (const s of two) {
    s.exec({
      language: 'python',
      code: 'import os, signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\nos.fork()\nwhile True: pass',
      timeoutMs: 60_000,
    }).catch(() => {});
  }
  say({ ready: provider.list().length });
  setInterval(() => {}, 1000);
} else {
  // As an ordinary user: refused, and with what is missing waived, contained.
  const answer = async (waive: string[]) => {
    const provider = makeSandboxProvider('local', { waive, stateFolder: process.argv[3]! });
    try {
      const s = await provider.create();
      const { stdout, status } = await s.exec({
        language: 'python',
        code: 'import os, socket\ntry:\n    socket.socket(40, 1)\nexcept OSError as e: print(e.errno, os.getuid(), sorted(os.listdir("/")))',
      });
      return { status, stdout };
    } catch (e) {
      return isSinkflexError(e) ? { code: e.code, missing: e.details?.missing, message: e.message } : { message: String(e) };
    } finally {
      await provider.close();
    }
  };
  const refused = await answer([]);
  say({ refused, waived: 'missing' in refused ? await answer(refused.missing as string[]) : null });
}

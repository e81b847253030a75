// Whether sandboxes can be tried on this machine.
import type { SandboxProvider } from '../../actors/index.ts';
import { makeSandboxProvider } from '../../actors/sandbox/index.ts';
import { isSinkflexError } from '../../kernels/index.ts';

/** Why there is no sandbox here; undefined: there is one. */
export async function whyNoSandbox(name: 'local' | 'runsc' = 'local'): Promise<string | undefined> {
  let provider: SandboxProvider | undefined;
  try {
    provider = makeSandboxProvider(name, {});
    const report = await provider.selfTest();
    return report.ok ? undefined : `the ${name} sandbox would not hold here: not in force: ${report.missing.join(', ')}`;
  } catch (e) {
    if (isSinkflexError(e) && e.code === 'SINKFLEX_SANDBOX_MISSING') return e.message;
    throw e;
  } finally {
    await provider?.close();
  }
}

/** Providers by name, and one shared by all environments of a process that ask for the same. */
import { ActorsError, didYouMean } from '../errors.ts';
import { BubblewrapLauncher } from './bubblewrap.ts';
import { type MachineProviderOptions, MachineSandboxProvider } from './provider.ts';
import { RunscLauncher } from './runsc.ts';
import type { SandboxProvider } from './types.ts';
import { UnsafeSubprocessProvider } from './unsafe.ts';

const providers = new Map<string, (o: MachineProviderOptions) => SandboxProvider>([
  ['local', (o) => new MachineSandboxProvider(new BubblewrapLauncher(), o)],
  ['runsc', (o) => new MachineSandboxProvider(new RunscLauncher(), o)],
  ['unsafe-subprocess', () => new UnsafeSubprocessProvider()],
]);

/** Adds a provider of your own, such as one of a remote service; a name can be taken once. */
export function registerSandboxProvider(name: string, create: (o: MachineProviderOptions) => SandboxProvider): void {
  if (providers.has(name))
    throw new ActorsError('SINKFLEX_SANDBOX_OPTION', `a sandbox provider named "${name}" is registered already: choose another name`);
  providers.set(name, create);
}

export const sandboxProviderNames = (): string[] => [...providers.keys()];

export function checkSandboxProvider(name: string): void {
  if (providers.has(name)) return;
  const near = didYouMean(name, providers.keys());
  throw new ActorsError(
    'SINKFLEX_SANDBOX_OPTION',
    `there is no sandbox provider "${name}"${near ? `; did you mean "${near}"?` : ` (${sandboxProviderNames().join(', ')})`}`,
    { details: { option: 'sandbox', value: name } },
  );
}

export function makeSandboxProvider(name: string, o: MachineProviderOptions = {}): SandboxProvider {
  checkSandboxProvider(name);
  return providers.get(name)!(o);
}

const shared = new Map<string, SandboxProvider>();

/** The provider of this process with that name and options; made when it is first asked for, and never ended but with the process. */
export function sharedSandboxProvider(name: string, o: MachineProviderOptions = {}): SandboxProvider {
  const key = JSON.stringify([name, o]);
  const known = shared.get(key);
  if (known) return known;
  const made = makeSandboxProvider(name, o);
  shared.set(key, made);
  return made;
}

/** Ends the shared ones: their sandboxes, groups and files. */
export async function closeSharedSandboxes(): Promise<void> {
  const all = [...shared.values()];
  shared.clear();
  await Promise.all(all.map((p) => p.close()));
}

// Where operators run: on the CPU, or through a backend library that the addon opens at run time. `cuda` is the one that
// `npm run build:cuda` makes; any other name is the path of a library.
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { callNative, SinkflexError } from './errors.ts';
import { addon, packageRoot } from './native.ts';

export interface BackendChoice {
  /** `cpu` (default), `cuda`, or the path of a backend library. */
  backend?: string;
  /** Which GPU of the machine, as CUDA counts them; default 0. */
  device?: number;
}

/** What the addon takes: the library's path, none for the CPU. */
export function libraryOf(choice: BackendChoice): { library?: string; device: number } {
  const device = choice.device ?? 0;
  if (choice.backend === undefined || choice.backend === 'cpu') return { device };
  const library = choice.backend === 'cuda' ? cudaLibrary() : resolve(choice.backend);
  if (existsSync(library)) return { library, device };
  throw new SinkflexError(
    'SINKFLEX_BACKEND_MISSING',
    choice.backend === 'cuda'
      ? `the CUDA backend is not built (${library}): run \`npm run build:cuda\` in the package; it needs nvcc and CMake`
      : `there is no backend library ${library}`,
    { details: { library } },
  );
}

/** Where `npm run build:cuda` puts it. */
export function cudaLibrary(): string {
  return join(packageRoot(), 'build-cuda', 'libsinkflex-cuda.so');
}

/** Opens a backend library for a device; its name. Throws a SinkflexError that says what is missing. */
export function openBackend(choice: BackendChoice): string {
  const { library, device } = libraryOf(choice);
  if (library === undefined) return (addon.backendName as () => string | undefined)() ?? 'cpu';
  return callNative(() => (addon.openBackend as (path: string, device: number) => string)(library, device));
}

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

/** A device as commands and settings name it: `cpu`, `cuda` (the first GPU) or `cuda:1`. */
export function deviceChoice(name: string): BackendChoice {
  if (name === 'cpu') return {};
  const gpu = /^cuda(?::(\d{1,3}))?$/.exec(name);
  if (gpu) return { backend: 'cuda', device: Number(gpu[1] ?? 0) };
  throw new SinkflexError('SINKFLEX_BAD_ARGUMENT', `there is no device "${name}": it is cpu, cuda, or cuda:1 and so on`);
}

/** What the addon takes: the library's path, none for the CPU. */
export function libraryOf(choice: BackendChoice): { library?: string; device: number } {
  const device = choice.device ?? 0;
  if (choice.backend === undefined || choice.backend === 'cpu') return { device };
  const library = choice.backend === 'cuda' ? cudaLibrary() : resolve(choice.backend);
  if (existsSync(library)) return { library, device };
  const built = choice.backend === 'cuda' && !process.env.SINKFLEX_CUDA_LIBRARY;
  throw new SinkflexError(
    'SINKFLEX_BACKEND_MISSING',
    built
      ? `the CUDA backend is not built (${library}): run \`npm run build:cuda\` in the package; it needs nvcc and CMake`
      : `there is no backend library ${library}: name another, or build that for CUDA with \`npm run build:cuda\``,
    { details: { library } },
  );
}

/** Where `npm run build:cuda` puts it, or what SINKFLEX_CUDA_LIBRARY names. */
export function cudaLibrary(): string {
  const named = process.env.SINKFLEX_CUDA_LIBRARY;
  return named ? resolve(named) : join(packageRoot(), 'build-cuda', 'libsinkflex-cuda.so');
}

/** What a device is, without taking it or any of its memory. Throws a SinkflexError that says what is missing. */
export function probeDevice(choice: BackendChoice): string {
  const { library, device } = libraryOf(choice);
  if (library === undefined) return (addon.backendName as () => string | undefined)() ?? 'cpu';
  return callNative(() => (addon.probeBackend as (path: string, device: number) => string)(library, device));
}

/** A reward of the user's own, from a file: `export default (episode) => number`. It runs in worker threads; one that misses its deadline is ended. */
import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Piscina } from 'piscina';
import { ActorsError } from '../errors.ts';
import type { RewardComponent } from './types.ts';

const THREADS = 2;

export interface ModuleRewardOptions {
  /** A built module. */
  path: string;
  /** Name of the export; `default` unless told. */
  export?: string;
}

export function moduleReward(name: string, o: ModuleRewardOptions): RewardComponent {
  const path = resolve(o.path);
  let pool: Promise<Piscina> | undefined;
  return {
    name,
    async score(episode, signal) {
      pool ??= import('piscina').then(
        ({ Piscina }) => new Piscina({ filename: new URL('./module-thread.js', import.meta.url).href, maxThreads: THREADS, minThreads: 0 }),
      );
      return (await (await pool).run({ path, name: o.export ?? 'default', episode }, { signal })) as number;
    },
    async close() {
      await (await pool)?.destroy();
    },
  };
}

/** Imports it once, so that what is wrong with it is said before a run starts. */
export async function checkModuleReward(key: string, o: ModuleRewardOptions): Promise<void> {
  const path = resolve(o.path);
  const refuse = (why: string, cause?: unknown): never => {
    throw new ActorsError('SINKFLEX_REWARD_OPTION', `${key} = ${o.path}: ${why}`, { cause, details: { path } });
  };
  if (!statSync(path, { throwIfNoEntry: false })?.isFile()) refuse(`there is no file ${path}; give the path of a built module (.js)`);
  let module: Record<string, unknown> = {};
  try {
    module = (await import(pathToFileURL(path).href)) as Record<string, unknown>;
  } catch (cause) {
    refuse(`it cannot be imported: ${cause instanceof Error ? cause.message : String(cause)}`, cause);
  }
  const wanted = o.export ?? 'default';
  if (typeof module[wanted] !== 'function')
    refuse(`it exports no function "${wanted}"; it has ${Object.keys(module).join(', ') || 'no exports'}`);
}

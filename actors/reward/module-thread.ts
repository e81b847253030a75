// Runs a user's reward function in a worker thread, where it may take its time and be ended.
import { pathToFileURL } from 'node:url';
import type { ScoredEpisode } from './types.ts';

export default async function score(o: { path: string; name: string; episode: ScoredEpisode }): Promise<number> {
  const module = (await import(pathToFileURL(o.path).href)) as Record<string, unknown>;
  const reward = module[o.name];
  if (typeof reward !== 'function') throw new Error(`${o.path} exports no function "${o.name}"`);
  return (await (reward as (e: ScoredEpisode) => unknown)(o.episode)) as number;
}

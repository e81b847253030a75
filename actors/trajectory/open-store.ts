/** Which store a place means: the URL of a Redis server with the name of a run, or a file of SQLite. */
import { SqliteTrajectoryStore } from './sqlite-store.ts';
import type { TrajectoryStore } from './store.ts';

/** Opens a store, or makes it. `readonly`: one that exists, and that another process may be writing. */
export async function openTrajectoryStore(place: string, o: { readonly?: boolean } = {}): Promise<TrajectoryStore> {
  if (!/^rediss?:/.test(place)) return new SqliteTrajectoryStore(place, o);
  const { RedisTrajectoryStore } = await import('./redis-store.ts');
  const password = process.env.SINKFLEX_REDIS_PASSWORD;
  return RedisTrajectoryStore.open(place, { ...o, ...(password ? { password } : {}) });
}

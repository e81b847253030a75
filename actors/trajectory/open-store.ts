/** Which store a place means: a path is a file of SQLite. */
import { SqliteTrajectoryStore } from './sqlite-store.ts';
import type { TrajectoryStore } from './store.ts';

/** Opens a store, or makes it. `readonly`: one that exists, and that another process may be writing. */
export async function openTrajectoryStore(place: string, o: { readonly?: boolean } = {}): Promise<TrajectoryStore> {
  return new SqliteTrajectoryStore(place, o);
}

/** What a domain of the benchmark is to the code that is common to all of them. */
import type { Fixes } from './settings.ts';
import type { Toolkit } from './toolkit.ts';

export type DomainName = 'retail' | 'airline' | 'telecom' | 'mock';
export type Side = 'assistant' | 'user';

/** The data of a domain as loaded, shared by all its environments. `W` is one environment's world. */
export interface Domain<W = unknown> {
  readonly name: DomainName;
  readonly agent: Toolkit<W>;
  readonly user?: Toolkit<W>;
  world(fixes: Fixes): W;
  /** What follows from a call on the other side; after every call. */
  sync?(world: W): void;
  /** Merges a task's initialization_data into one side's database; raises PythonError for what its models refuse. */
  update?(world: W, side: Side, data: Record<string, unknown>): void;
  /** The benchmark's own hash of each side's database; null for a side that has none. */
  hashes(world: W): { agent: string; user: string | null };
  /** Whether both hashes would be equal, cheaper. */
  same(a: W, b: W): boolean;
  /** A world to go back to, for the `atomic` fix. */
  snapshot(world: W): () => void;
}

// More agents while something waits for room, by a launcher that can bring more.
import { setTimeout as delay } from 'node:timers/promises';
import { chooseRun, nodesWanted, RunObserver } from '../../runtime/index.ts';
import type { HeadPlace, Launcher, StartedAgents } from './launcher.ts';

const LOOK_MS = 1000;
/** What waits for a moment only is placed by itself. */
const LOOKS = 2;

export interface ScalingOptions {
  folder: string;
  launcher: Launcher;
  head: HeadPlace;
  /** Agents that the launcher has brought. */
  first: number;
  /** At most so many of them in all. */
  most: number;
  note(text: string): void;
  signal: AbortSignal;
  lookMs?: number;
}

/** Looks every second what waits; what has waited twice gets the agents that it needs. Answers the end of it, which ends those agents. */
export function keepScaling(o: ScalingOptions): () => Promise<void> {
  const ending = new AbortController();
  const signal = AbortSignal.any([o.signal, ending.signal]);
  const started: StartedAgents[] = [];
  const work = scale(o, started, signal).catch((error: Error) => {
    if (!signal.aborted) o.note(`no more agents are started: ${error.message}`);
  });
  return async () => {
    ending.abort();
    await work;
    await Promise.all(started.map((agents) => agents.stop()));
  };
}

async function scale(
  { folder, launcher, head, first, most, note, lookMs = LOOK_MS }: ScalingOptions,
  started: StartedAgents[],
  signal: AbortSignal,
) {
  let count = first;
  let seen = 0;
  while (count < most) {
    await delay(lookMs, undefined, { signal });
    const wanted = await wantedNow(folder, launcher.more!(count).resources as Record<string, number>, most - count);
    seen = wanted > 0 ? seen + 1 : 0;
    if (seen < LOOKS) continue;
    seen = 0;
    const more = Array.from({ length: wanted }, () => launcher.more!(count++));
    note(
      `actors wait for room: ${more.length} more ${more.length === 1 ? 'agent' : 'agents'} (${more.map(({ node }) => node).join(', ')})`,
    );
    started.push(await launcher.start(more, head, signal));
  }
}

/** 0 while the head is away. */
async function wantedNow(folder: string, resources: Record<string, number>, most: number): Promise<number> {
  let observer: RunObserver;
  try {
    observer = await RunObserver.attach(chooseRun(folder));
  } catch {
    return 0;
  }
  try {
    return nodesWanted(await observer.ask('demand'), { resources }, most);
  } catch {
    return 0;
  } finally {
    observer.close();
  }
}

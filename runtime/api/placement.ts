// Where things are placed: placement groups, nodes, and why something waits.
import { randomBytes } from 'node:crypto';
import type { Bundle, Demand, Explanation, NodeView, Strategy } from '../control/index.ts';
import { session } from '../worker/index.ts';
import { checkTimeout } from './check.ts';
import { RuntimeFailure } from './errors.ts';
import { handleClient } from './handle.ts';
import { checkBundles, checkGroup } from './options.ts';
import { currentOwner } from './owner.ts';
import type { AnyHandle, BundleOptions, PlacementGroupOptions } from './types.ts';

/** Resources that are reserved together, on one node or on several. */
export interface PlacementGroup {
  /** What `spawn(..., { placementGroup: group })` takes. Plain data with `ready` and `remove` left out: pass `{ id }` on to others. */
  readonly id: string;
  /** Resolves when every bundle has its place; rejects with SINKFLEX_GROUP_REMOVED if that will not be. */
  ready(options?: { timeoutMs?: number }): Promise<void>;
  /** Gives the resources back, and ends the actors that use them. */
  remove(): Promise<void>;
}

/**
 * Reserves bundles of resources, all or none; actors are placed in them with `spawn(..., { placementGroup, bundle })`. Bundles that are lost
 * with their node are placed again. The group ends with the actor or driver that made it, unless it is detached.
 *
 * @example
 * const group = placementGroup([{ cpus: 2 }, { cpus: 2 }], { strategy: 'STRICT_SPREAD' });
 * await group.ready();
 * const workers = [0, 1].map((bundle) => spawn(Worker, { cpus: 2, placementGroup: group, bundle }));
 */
export function placementGroup(bundles: readonly BundleOptions[], options: PlacementGroupOptions = {}): PlacementGroup {
  const checked: Bundle[] = checkBundles(bundles);
  const { strategy, name, lifetime }: { strategy: Strategy; name: string | undefined; lifetime: 'owned' | 'detached' } =
    checkGroup(options);
  const here = session();
  const id = randomBytes(16).toString('base64url');
  const created = here.ask({
    q: 'group-create',
    group: id,
    bundles: checked,
    strategy,
    lifetime,
    ...(name === undefined ? {} : { name }),
    ...(lifetime === 'detached' ? {} : { owner: currentOwner() }),
  });
  created.catch(() => {}); // ready() and remove() say it
  return {
    id,
    async ready(options = {}) {
      const timeoutMs = checkTimeout('ready of a placement group', options);
      await within(
        timeoutMs,
        `placement group ${name ?? id}`,
        created.then(() => here.ask({ q: 'group-ready', group: id })),
      );
    },
    async remove() {
      await created;
      await here.ask({ q: 'group-remove', group: id });
    },
  };
}

async function within(timeoutMs: number | undefined, what: string, work: Promise<unknown>): Promise<void> {
  if (timeoutMs === undefined) {
    await work;
    return;
  }
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new RuntimeFailure('SINKFLEX_NOT_PLACED', `${what} has no room after ${timeoutMs} ms: explain() says why`)),
      timeoutMs,
    );
  });
  try {
    await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Why an actor or a placement group is where it is, or why it waits: node by node.
 *
 * @example
 * const why = await explain(trainer);
 * console.log(why.text);
 */
export async function explain(subject: AnyHandle | { readonly id: string }): Promise<Explanation> {
  const client = handleClient(subject);
  const id = client === undefined ? { group: (subject as { id: string }).id } : { actor: client.id };
  return (await session().ask({ q: 'explain', id })) as Explanation;
}

/** The nodes that actors can be placed on, with what they have and what is free. */
export async function listNodes(): Promise<NodeView[]> {
  return (await session().ask({ q: 'nodes' })) as NodeView[];
}

/**
 * What waits for room: requests of actors, tasks and bundles, alike ones counted together. `nodesWanted()` makes a number of nodes of it.
 *
 * @example
 * const more = nodesWanted(await pendingDemand(), { resources: { cpus: 8, gpus: 1 } }, 10);
 */
export async function pendingDemand(): Promise<Demand[]> {
  return (await session().ask({ q: 'demand' })) as Demand[];
}

/**
 * Takes a node out of use: nothing is placed there any more, actors that may be restarted move (their drain() and checkpoint() run first),
 * and its agent ends after `timeoutMs` at the latest.
 */
export async function drainNode(node: string, options: { timeoutMs?: number } = {}): Promise<void> {
  const graceMs = checkTimeout('drainNode', options) ?? 30_000;
  await session().ask({ q: 'drain', node, graceMs });
}

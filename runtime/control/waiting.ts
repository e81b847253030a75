// Who waits for room, and who gets what comes free: in order of arrival, each shape in a queue of its own, so that a large request that does
// not fit holds up nobody but its like.
import { matches } from './labels.ts';
import { isOpen, type NodeRecord } from './nodes.ts';
import type { GroupRecord, Seeker, Shape, State, Ticket } from './state.ts';

export function isWaiting(shape: Shape): boolean {
  return first(shape) !== undefined;
}

export function enqueue(state: State, seeker: Seeker, seq = state.seq++): void {
  const ticket: Ticket = { seq, subject: seeker, gone: false };
  seeker.ticket = ticket;
  seeker.shape.queue.push(ticket);
  state.waitingShapes.add(seeker.shape);
}

export function dequeue(state: State, seeker: Seeker): void {
  if (seeker.ticket === undefined) return;
  seeker.ticket.gone = true;
  seeker.ticket = undefined;
  if (first(seeker.shape) === undefined) state.waitingShapes.delete(seeker.shape);
}

/** The one that has waited longest. Steps over those that have left, and drops them now and then. */
export function first(shape: Shape): Ticket | undefined {
  while (shape.head < shape.queue.length && shape.queue[shape.head]!.gone) shape.head++;
  if ((shape.head > 0 && shape.head === shape.queue.length) || shape.head > 1024 + shape.queue.length / 2) {
    shape.queue = shape.queue.slice(shape.head);
    shape.head = 0;
  }
  return shape.queue[shape.head];
}

/** How many of its shape have waited longer. */
export function ahead(seeker: Seeker): number {
  let count = 0;
  for (const ticket of seeker.shape.queue) {
    if (ticket === seeker.ticket) return count;
    if (!ticket.gone) count++;
  }
  return 0;
}

export function enqueueGroup(state: State, group: GroupRecord, seq = state.seq++): void {
  group.seq = seq;
  state.waitingGroups.add(group);
}

export function dequeueGroup(state: State, group: GroupRecord): void {
  group.seq = undefined;
  state.waitingGroups.delete(group);
}

interface Retry {
  seeker(seeker: Seeker): boolean;
  group(group: GroupRecord): boolean;
}

/**
 * Goes through those that wait for what has come free. Nothing else can have changed for a waiting one: it did not fit anywhere when it was
 * last tried, and elsewhere room has only become less.
 */
export function retryWaiting(state: State, retry: Retry): void {
  const nodes = [...state.freedNodes].filter((node) => isOpen(node) && state.isUp(node));
  const groups = new Set(state.freedGroups);
  state.freedNodes.clear();
  state.freedGroups.clear();
  const candidates: (Shape | GroupRecord)[] = [];
  for (const shape of state.waitingShapes) {
    const { group } = shape.request;
    if (group === undefined ? nodes.some((node) => couldUse(node, shape)) : groups.has(state.groups.get(group)!)) candidates.push(shape);
  }
  for (const group of state.waitingGroups) {
    if (group.bundles.some((bundle) => bundle.node === undefined && nodes.some((node) => couldUse(node, bundle)))) candidates.push(group);
  }
  while (candidates.length > 0) {
    let at = 0;
    for (let i = 1; i < candidates.length; i++) if (seqOf(candidates[i]!) < seqOf(candidates[at]!)) at = i;
    const next = candidates[at]!;
    let more = false;
    if ('kind' in next) retry.group(next);
    else more = retry.seeker(first(next)!.subject) && isWaiting(next);
    if (!more) candidates.splice(at, 1);
  }
}

function couldUse(node: NodeRecord, query: Pick<Shape, 'needs' | 'selector'>): boolean {
  return matches(query.selector, node.labels) && node.pool.fits(query.needs);
}

const seqOf = (candidate: Shape | GroupRecord): number => ('kind' in candidate ? candidate.seq! : first(candidate)!.seq);

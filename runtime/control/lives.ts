// Actors in the cluster: names, owners, and the life machine of actor.ts joined to places on nodes.
import { type ActorEvent, advance, born } from './actor.ts';
import type { BackoffElapsed, Died, Kill, OwnerId, Spawn, Started, TerminateReason } from './cluster-types.ts';
import { ownerActor } from './cluster-types.ts';
import { giveBack, takeRoom } from './placement.ts';
import { type ActorRecord, rememberIn, type State } from './state.ts';
import { dequeue, enqueue, isWaiting } from './waiting.ts';

export function spawn(state: State, event: Spawn): void {
  if (state.actors.has(event.actor)) return;
  const holder = state.names.get(event.name);
  if (holder !== undefined && !isEnding(holder)) {
    refuse(state, event, holder);
    return;
  }
  const { life, effects } = born(event.policy);
  const owner = event.lifetime === 'detached' ? undefined : event.owner;
  const actor: ActorRecord = {
    kind: 'actor',
    id: event.actor,
    order: state.order++,
    name: event.name,
    definition: event.definition,
    shape: state.shapeOf(event.request),
    lifetime: event.lifetime,
    owner,
    near: event.near,
    life,
    holding: undefined,
    tenantAt: 0,
    ownedAt: 0,
    ticket: undefined,
    before: undefined,
    after: undefined,
    delayMs: 0,
    why: undefined,
    because: undefined,
  };
  state.actors.set(actor.id, actor);
  state.takeName(actor);
  state.own(owner, actor);
  const { group } = event.request;
  const place = group === undefined ? undefined : state.groups.get(group);
  place?.drawers.add(actor);
  if (owner !== undefined && !state.ownerLives(owner)) end(state, actor, 'owner-gone', `its owner ${owner} was gone before it started`);
  else if (group !== undefined && (place === undefined || place.state === 'removing' || place.state === 'removed'))
    end(state, actor, 'group-removed', `its placement group ${group} ${place === undefined ? 'is not known' : 'was removed'}`);
  else for (const effect of effects) perform(state, actor, effect);
}

function refuse(state: State, event: Spawn, holder: ActorRecord): void {
  if (!event.getIfExists) state.emit({ type: 'refused', actor: event.actor, existing: holder.id, why: 'name' });
  else if (holder.definition !== event.definition)
    state.emit({ type: 'refused', actor: event.actor, existing: holder.id, why: 'definition' });
  else state.emit({ type: 'exists', actor: event.actor, existing: holder.id });
}

/** Being ended for good: whoever wants its name gets it, and waits for the end. */
export function isEnding(actor: ActorRecord): boolean {
  return actor.life.status === 'stopping' && actor.life.intent === 'kill';
}

export function started(state: State, event: Started): void {
  // Only what was told to start can have started.
  const actor = state.actors.get(event.actor);
  if (actor?.holding !== undefined) step(state, actor, event);
}

export function died(state: State, event: Died): void {
  const actor = state.actors.get(event.actor);
  if (actor?.holding === undefined || actor.life.incarnation !== event.incarnation) return;
  step(state, actor, event);
}

export function backoffElapsed(state: State, event: BackoffElapsed): void {
  const actor = state.actors.get(event.actor);
  if (actor !== undefined) step(state, actor, event);
}

export function kill(state: State, event: Kill): void {
  const actor = state.actors.get(event.actor);
  if (actor === undefined || (event.incarnation !== undefined && event.incarnation !== actor.life.incarnation)) return;
  if (actor.life.status === 'starting' || actor.life.status === 'alive') actor.why = event.restart ? 'restart' : 'kill';
  step(state, actor, event);
}

/** Ends it for good, for a reason that is not its own. */
export function end(state: State, actor: ActorRecord, why: TerminateReason, because: string): void {
  if (actor.life.status === 'dead') return;
  actor.why = why;
  actor.because ??= because;
  step(state, actor, { type: 'kill', restart: false });
}

/** Its node goes away in peace: it moves, if it may restart at all. */
export function move(state: State, actor: ActorRecord): void {
  const { status, policy } = actor.life;
  if ((status !== 'starting' && status !== 'alive') || policy.maxRestarts === 0) return;
  actor.why = 'drain';
  step(state, actor, { type: 'kill', restart: true });
}

function step(state: State, actor: ActorRecord, event: ActorEvent): void {
  const before = actor.life;
  const { life, effects } = advance(before, event, state.now);
  if (life === before) return;
  actor.life = life;
  if (event.type === 'died') {
    giveBack(state, actor);
    actor.why = undefined;
    const self = ownerActor(actor.id, event.incarnation);
    if (state.owned.has(self)) state.endedOwners.push(self);
  }
  for (const effect of effects) perform(state, actor, effect);
  if (life.status === 'dead') bury(state, actor);
}

function perform(state: State, actor: ActorRecord, effect: ReturnType<typeof advance>['effects'][number]): void {
  const { id } = actor;
  switch (effect.type) {
    case 'announce':
      state.emit({ type: 'announce', actor: id });
      return;
    case 'wait':
      actor.delayMs = effect.delayMs;
      state.emit({ type: 'wait', actor: id, incarnation: effect.incarnation, delayMs: effect.delayMs });
      return;
    case 'start':
      seek(state, actor);
      return;
    case 'terminate': {
      const { holding } = actor;
      if (holding === undefined) {
        // Nowhere yet: it is over at once.
        dequeue(state, actor);
        step(state, actor, { type: 'died', incarnation: effect.incarnation });
      } else if (state.isUp(holding.node))
        state.emit({ type: 'terminate', actor: id, incarnation: effect.incarnation, node: holding.node.node, why: actor.why ?? 'kill' });
      return;
    }
  }
}

/** Looks for a place; those of its shape that have waited longer come first. */
function seek(state: State, actor: ActorRecord): void {
  // Another actor of the same name has yet to die.
  if (actor.before !== undefined) return;
  if (isWaiting(actor.shape) || !tryStart(state, actor)) enqueue(state, actor);
}

/** Starts it if there is room. */
export function tryStart(state: State, actor: ActorRecord): boolean {
  const holding = takeRoom(state, actor);
  if (holding === undefined) return false;
  const waited = actor.ticket !== undefined;
  dequeue(state, actor);
  state.emit({ type: 'start', actor: actor.id, incarnation: actor.life.incarnation, node: holding.node.node, gpus: gpuNumbers(actor) });
  if (waited) state.emit({ type: 'announce', actor: actor.id });
  return true;
}

export function gpuNumbers(seeker: Pick<ActorRecord, 'holding'>): number[] {
  return seeker.holding?.gpus.map(([id]) => id) ?? [];
}

function bury(state: State, actor: ActorRecord): void {
  if (state.dead.has(actor)) return;
  dequeue(state, actor);
  state.disown(actor.owner, actor);
  if (actor.shape.request.group !== undefined) state.groups.get(actor.shape.request.group)?.drawers.delete(actor);
  state.leaveShape(actor.shape);
  const heir = actor.after;
  state.leaveName(actor);
  const forgotten = rememberIn(state.dead, actor, state.remember);
  if (forgotten !== undefined) {
    state.actors.delete(forgotten.id);
    state.emit({ type: 'forget', actor: forgotten.id });
  }
  if (heir !== undefined && heir.life.status === 'starting') {
    seek(state, heir);
    state.emit({ type: 'announce', actor: heir.id });
  }
}

/** Everything of that owner that is not detached, oldest first. */
export function ownedBy(state: State, owner: OwnerId) {
  return [...(state.owned.get(owner) ?? [])].sort((a, b) => a.order - b.order);
}

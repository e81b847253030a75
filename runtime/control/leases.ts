// Leases: resources on a node for tasks, from the moment they are granted until they are returned or lost.
import type { Lease, LeaseReturn } from './cluster-types.ts';
import { gpuNumbers } from './lives.ts';
import { giveBack, takeRoom } from './placement.ts';
import { type LeaseRecord, rememberIn, type State } from './state.ts';
import { dequeue, enqueue, isWaiting } from './waiting.ts';

export function lease(state: State, event: Lease): void {
  if (state.leases.has(event.lease) || state.endedLeases.has(event.lease)) return;
  const { group: groupId } = event.request;
  const group = groupId === undefined ? undefined : state.groups.get(groupId);
  const groupGone = groupId !== undefined && (group === undefined || group.state === 'removing' || group.state === 'removed');
  if (groupGone || !state.ownerLives(event.owner)) {
    rememberIn(state.endedLeases, event.lease, state.remember);
    state.emit({ type: 'lease-lost', lease: event.lease });
    return;
  }
  const record: LeaseRecord = {
    kind: 'lease',
    id: event.lease,
    order: state.order++,
    shape: state.shapeOf(event.request),
    owner: event.owner,
    near: event.near,
    holding: undefined,
    tenantAt: 0,
    ownedAt: 0,
    ticket: undefined,
  };
  state.leases.set(record.id, record);
  state.own(record.owner, record);
  group?.drawers.add(record);
  if (isWaiting(record.shape) || !tryGrant(state, record)) enqueue(state, record);
}

export function tryGrant(state: State, record: LeaseRecord): boolean {
  const holding = takeRoom(state, record);
  if (holding === undefined) return false;
  dequeue(state, record);
  state.emit({ type: 'leased', lease: record.id, node: holding.node.node, gpus: gpuNumbers(record) });
  return true;
}

export function leaseReturn(state: State, event: LeaseReturn): void {
  const record = state.leases.get(event.lease);
  if (record !== undefined) endLease(state, record);
}

export function loseLease(state: State, record: LeaseRecord): void {
  endLease(state, record);
  state.emit({ type: 'lease-lost', lease: record.id });
}

function endLease(state: State, record: LeaseRecord): void {
  dequeue(state, record);
  giveBack(state, record);
  state.disown(record.owner, record);
  const { group } = record.shape.request;
  if (group !== undefined) state.groups.get(group)?.drawers.delete(record);
  state.leaveShape(record.shape);
  state.leases.delete(record.id);
  rememberIn(state.endedLeases, record.id, state.remember);
}

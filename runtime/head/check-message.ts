// What peers of other hosts say to the head is looked at before it is acted on, or written down: a record that no head can read would stop
// every head after this one.
import { RuntimeFailure } from '../api/errors.ts';
import type { Ask, ToHead } from '../control/index.ts';
import type { FaultOrder } from '../faults/orders.ts';
import {
  amount,
  anything,
  bytes,
  either,
  fields,
  flag,
  integer,
  isRecord,
  limit,
  list,
  one,
  optional,
  pair,
  record,
  type Shape,
  text,
  whole,
} from './shapes.ts';

const encoded = fields({ header: bytes, sections: bytes });
/** decodeError() takes any. */
const error: Shape = (value) => Array.isArray(value);
const resources = record(amount);
const labels = record(text);
const owner: Shape = (value) => typeof value === 'string' && /^(driver\/[\w-]+|actor\/\d+\/\d+)$/.test(value);

const request = fields({
  resources,
  labels,
  strategy: either(one('hybrid', 'spread'), fields({ node: text, soft: flag })),
  group: optional(text),
  bundle: optional(integer),
});

const spec = fields({
  actor: whole,
  name: text,
  kind: text,
  definition: text,
  module: text,
  roots: optional(record(text)),
  exportName: text,
  methods: list(text),
  streams: list(text),
  args: encoded,
  isolation: one('process', 'thread', 'shared'),
  request,
  getIfExists: flag,
  lifetime: one('owned', 'detached'),
  owner: optional(owner),
  threads: limit,
  maxRestarts: limit,
  restartWindowMs: limit,
  restartBackoffMs: limit,
  maxConcurrency: limit,
  maxPending: limit,
  onFull: one('wait', 'reject'),
  concurrencyGroups: record(fields({ maxConcurrency: limit, methods: list(text) })),
  cwd: optional(text),
  execArgv: list(text),
  checkpointIntervalMs: limit,
  unresponsiveMs: limit,
  env: record(text),
  imports: list(text),
});

const host = fields({ host: text, url: optional(text), numbers: list(pair(whole, whole)) });
const died = fields({
  actor: whole,
  incarnation: whole,
  end: fields({
    exitCode: optional(integer),
    signal: optional(text),
    lastStderr: list(text),
    constructorFailed: flag,
    cause: optional(error),
    outOfMemory: optional(flag),
  }),
});
const hosted = fields({ actor: whole, incarnation: whole, worker: whole, pid: optional(whole), started: flag });

const orders: Record<FaultOrder['do'], Shape> = {
  kill: fields({ actor: optional(whole) }),
  stop: fields({ actor: optional(whole), forMs: amount }),
  slow: fields({ actor: optional(whole), forMs: amount, share: amount }),
  links: fields({ rules: record(anything), peer: optional(text), seed: integer, forMs: amount }),
  fill: fields({ folder: text, mostBytes: amount, forMs: amount }),
  count: anything,
};
const order: Shape = (value) =>
  isRecord(value) && typeof value.do === 'string' && Object.hasOwn(orders, value.do) && orders[value.do as FaultOrder['do']](value);

const asks: Record<Ask['q'], Shape> = {
  find: fields({ name: text }),
  explain: fields({ id: either(fields({ actor: whole }), fields({ group: text })) }),
  nodes: anything,
  demand: anything,
  groups: anything,
  drain: fields({ node: text, graceMs: amount }),
  'group-create': fields({
    group: text,
    bundles: list(fields({ resources, labels: optional(labels) })),
    strategy: one('PACK', 'SPREAD', 'STRICT_PACK', 'STRICT_SPREAD'),
    lifetime: one('owned', 'detached'),
    owner: optional(owner),
    name: optional(text),
  }),
  'group-ready': fields({ group: text }),
  'group-remove': fields({ group: text }),
  lease: fields({ lease: text, request, owner }),
  'lease-return': fields({ lease: text }),
  route: fields({ worker: whole, host: text, url: optional(text) }),
  'job-submit': fields({
    request: fields({ command: list(text), cwd: optional(text), env: optional(record(text)), job: optional(text) }),
  }),
  'job-list': anything,
  'job-stop': fields({ job: text, graceMs: amount }),
  'job-log': fields({ job: text, from: whole }),
  fault: fields({ node: optional(text), order }),
  leave: fields({ driver: text, timeoutMs: amount }),
};
const ask: Shape = (value) =>
  isRecord(value) && typeof value.q === 'string' && Object.hasOwn(asks, value.q) && asks[value.q as Ask['q']](value);

const messages: Record<ToHead['t'], Shape> = {
  join: fields({
    node: text,
    pid: whole,
    processStart: text,
    total: resources,
    labels,
    needsNumbers: flag,
    hosted: list(hosted),
    ended: list(died),
    bundles: list(fields({ group: text, attempt: whole, bundle: whole })),
    host: optional(host),
  }),
  attach: fields({ driver: text, pid: whole, processStart: text, host: optional(host) }),
  numbers: anything,
  watch: anything,
  spawn: fields({ spec }),
  resolve: fields({ actor: whole }),
  kill: fields({ actor: whole, restart: flag, drain: flag, graceMs: amount, worker: integer, request: whole }),
  ask: fields({ worker: integer, request: whole, ask }),
  hosted,
  started: fields({ actor: whole, incarnation: whole }),
  checkpoint: fields({ actor: whole, incarnation: whole, state: encoded }),
  died,
  health: fields({ actor: whole, incarnation: whole, health: one('ok', 'blocked', 'stopped') }),
  prepared: fields({ group: text, attempt: whole, ok: flag }),
  draining: fields({ graceMs: amount }),
  beat: fields({ node: text, pid: whole, processStart: text, blockedMs: amount }),
  reply: fields({ worker: integer, request: whole, error: optional(error) }),
  leaving: anything,
};

/** Throws SINKFLEX_PROTOCOL. */
export function checkMessage(message: unknown): asserts message is ToHead {
  const kind = isRecord(message) && typeof message.t === 'string' ? message.t : undefined;
  if (kind === undefined || !Object.hasOwn(messages, kind) || !messages[kind as ToHead['t']](message))
    throw new RuntimeFailure(
      'SINKFLEX_PROTOCOL',
      `the peer said what is no message to a head${kind === undefined ? '' : ` (${kind.slice(0, 20)})`}`,
    );
}

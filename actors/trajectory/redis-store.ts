/**
 * The store for runs of many hosts: a Redis server (package `ioredis`). Records are entries of a stream in the order of writing; sorted sets
 * find them by step, task, group and version; a step is one script, so that it is whole or not there, whoever dies meanwhile.
 * The server has to keep what it is given: run it with `appendonly yes`.
 */
import { Redis } from 'ioredis';
import { nanoid } from 'nanoid';
import { headOf, type TrajectoryHead, type TrajectoryRecord } from './record.ts';
import { type ConsumedMark, consumedTwice, type StepEntry, storeFailure, type TrajectoryFilter, type TrajectoryStore } from './store.ts';

const FORMAT = '1';
const CONNECT_MS = 5000;
/** A server that takes what it is asked and does not answer for so long is in trouble. */
const ANSWER_MS = 30_000;
const PAGE = 128;

/** Shared by the scripts: KEYS[1] is the prefix. Adds one record, takes one away. */
const COMMON = `
local p = KEYS[1]
local function add(head, body)
  local id = redis.call('XADD', p .. 'log', '*', 'head', head, 'body', body)
  local h = cjson.decode(head)
  redis.call('ZADD', p .. 'step:' .. h.phase, h.step, id)
  redis.call('ZADD', p .. 'task', h.task, id)
  redis.call('SADD', p .. 'group:' .. h.group, id)
  if h.version_min ~= cjson.null then redis.call('ZADD', p .. 'version', h.version_min, id) end
end
local function drop(id)
  local entry = redis.call('XRANGE', p .. 'log', id, id)[1]
  if not entry then return end
  local h = cjson.decode(entry[2][2])
  redis.call('XDEL', p .. 'log', id)
  redis.call('ZREM', p .. 'step:' .. h.phase, id)
  redis.call('ZREM', p .. 'task', id)
  redis.call('SREM', p .. 'group:' .. h.group, id)
  redis.call('ZREM', p .. 'version', id)
end
redis.call('SETNX', p .. 'format', '${FORMAT}')
`;
/**
 * ARGV: step, number of marks, the call's own id, marks, then head and body of each record. Answers the mark that was there, or ''. A call whose
 * answer was lost with the connection is sent again: the second time it does nothing.
 */
const STEP = `${COMMON}
local step, marks = ARGV[1], tonumber(ARGV[2])
if redis.call('GET', p .. 'last') == ARGV[3] then return '' end
for i = 4, 3 + marks do
  if redis.call('HEXISTS', p .. 'consumed', ARGV[i]) == 1 then return ARGV[i] end
end
redis.call('SET', p .. 'last', ARGV[3])
for i = 4, 3 + marks do
  redis.call('HSET', p .. 'consumed', ARGV[i], step)
  redis.call('ZADD', p .. 'consumed:step', step, ARGV[i])
end
for i = 4 + marks, #ARGV, 2 do add(ARGV[i], ARGV[i + 1]) end
return ''
`;
const VALIDATION = `${COMMON}
for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. 'step:validation', ARGV[1], ARGV[1])) do drop(id) end
for i = 2, #ARGV, 2 do add(ARGV[i], ARGV[i + 1]) end
`;
const REWIND = `${COMMON}
local after = '(' .. ARGV[1]
for _, id in ipairs(redis.call('ZRANGEBYSCORE', p .. 'step:train', after, '+inf')) do drop(id) end
for _, mark in ipairs(redis.call('ZRANGEBYSCORE', p .. 'consumed:step', after, '+inf')) do redis.call('HDEL', p .. 'consumed', mark) end
redis.call('ZREMRANGEBYSCORE', p .. 'consumed:step', after, '+inf')
`;

const markOf = (m: ConsumedMark): string => `${m.task}/${m.sample}`;

export class RedisTrajectoryStore implements TrajectoryStore {
  readonly place: string;
  readonly #redis: Redis;
  readonly #prefix: string;

  private constructor(place: string, redis: Redis, prefix: string) {
    this.place = place;
    this.#redis = redis;
    this.#prefix = prefix;
  }

  /** `redis://host:port/0?run=name`: every run of a server has a name of its own. `password`: unless the URL has one. */
  static async open(url: string, o: { readonly?: boolean; password?: string } = {}): Promise<RedisTrajectoryStore> {
    const parsed = new URL(url);
    const run = parsed.searchParams.get('run');
    parsed.search = '';
    const place = `${parsed.protocol}//${parsed.host}${parsed.pathname}?run=${run}`;
    if (!run) throw storeFailure(place, 'open', new Error('the URL must name the run, as in redis://host:6379/0?run=mine'));
    const redis = new Redis(parsed.href, {
      ...(o.password !== undefined && parsed.password === '' ? { password: o.password } : {}),
      lazyConnect: true,
      connectTimeout: CONNECT_MS,
      commandTimeout: ANSWER_MS,
      maxRetriesPerRequest: 2,
      // A server that is not there is said at once; one that goes away is looked for again.
      retryStrategy: (times) => (times > 3 ? null : 100 * times),
    });
    // Calls reject with what happened; this is for what happens between them.
    redis.on('error', () => {});
    const store = new RedisTrajectoryStore(place, redis, `sinkflex:{${run}}:`);
    try {
      await redis.connect();
      const format = await redis.get(`${store.#prefix}format`);
      if (format === null && o.readonly) throw new Error('it has no such run');
      if (format !== null && format !== FORMAT) throw new Error(`it has format ${format}, this version reads ${FORMAT}`);
    } catch (e) {
      redis.disconnect();
      throw storeFailure(place, 'open', e);
    }
    return store;
  }

  async step(entry: StepEntry): Promise<void> {
    const marks = entry.consumed.map(markOf);
    const twice = await this.#run('write', () =>
      this.#redis.eval(STEP, 1, this.#prefix, entry.step, marks.length, nanoid(), ...marks, ...entry.records.flatMap(fieldsOf)),
    );
    if (twice === '') return;
    const [task, sample] = String(twice).split('/').map(Number) as [number, number];
    throw consumedTwice(this.place, { task, sample }, entry.step);
  }

  async validation(step: number, records: readonly TrajectoryRecord[]): Promise<void> {
    await this.#run('write', () => this.#redis.eval(VALIDATION, 1, this.#prefix, step, ...records.flatMap(fieldsOf)));
  }

  async rewind(step: number): Promise<void> {
    await this.#run('cut back', () => this.#redis.eval(REWIND, 1, this.#prefix, step));
  }

  async *read(filter: TrajectoryFilter = {}): AsyncGenerator<TrajectoryRecord> {
    for await (const [head, body] of this.#entries(filter)) {
      const record = JSON.parse(body) as TrajectoryRecord;
      yield { ...record, reward: head.reward };
    }
  }

  async *heads(filter: TrajectoryFilter = {}): AsyncGenerator<TrajectoryHead> {
    for await (const [head] of this.#entries(filter)) yield head;
  }

  async consumedAt(m: ConsumedMark): Promise<number | undefined> {
    const step = await this.#run('read', () => this.#redis.hget(`${this.#prefix}consumed`, markOf(m)));
    return step === null ? undefined : Number(step);
  }

  consumedCount(): Promise<number> {
    return this.#run('read', () => this.#redis.hlen(`${this.#prefix}consumed`));
  }

  async stepsOf(phase: 'train' | 'validation'): Promise<number[]> {
    const found = await this.#run('read', () => this.#redis.zrange(`${this.#prefix}step:${phase}`, '0', '-1', 'WITHSCORES'));
    return [...new Set(found.filter((_, i) => i % 2 === 1).map(Number))].sort((a, b) => a - b);
  }

  /** Waits for the append-only file where the server can be asked to (7.2), and has one. */
  async flush(): Promise<void> {
    try {
      await this.#redis.call('WAITAOF', '1', '0', String(CONNECT_MS));
    } catch (e) {
      if (!/unknown command|appendonly|append-only/i.test((e as Error).message)) throw storeFailure(this.place, 'flush', e);
    }
  }

  async close(): Promise<void> {
    if (this.#redis.status === 'ready') await this.#redis.quit().catch(() => {});
    this.#redis.disconnect();
  }

  async *#entries(f: TrajectoryFilter): AsyncGenerator<[TrajectoryHead, string]> {
    const ids = await this.#run('read', () => this.#candidates(f));
    for (let from = 0; from < ids.length; from += PAGE) {
      const pipeline = this.#redis.pipeline();
      for (const id of ids.slice(from, from + PAGE)) pipeline.xrange(`${this.#prefix}log`, id, id);
      const answers = await this.#run('read', () => pipeline.exec());
      for (const [error, found] of answers ?? []) {
        if (error) throw storeFailure(this.place, 'read', error);
        // Taken back since it was looked up.
        const entry = (found as [string, string[]][])[0];
        if (!entry) continue;
        const head = JSON.parse(entry[1][1]!) as TrajectoryHead;
        if (head.reward === null) head.reward = Number.NaN;
        if (chosen(head, f)) yield [head, entry[1][3]!];
      }
    }
  }

  /** Ids in the order of writing, by the narrowest index. */
  async #candidates(f: TrajectoryFilter): Promise<string[]> {
    const p = this.#prefix;
    const [low, high] = f.steps ?? ['-inf', '+inf'];
    let ids: string[];
    if (f.task !== undefined) ids = await this.#redis.zrangebyscore(`${p}task`, f.task, f.task);
    else if (f.group !== undefined) ids = await this.#redis.smembers(`${p}group:${f.group}`);
    else if (f.version !== undefined) ids = await this.#redis.zrangebyscore(`${p}version`, '-inf', f.version);
    else {
      const phases = f.phase === undefined ? ['train', 'validation'] : [f.phase];
      ids = (await Promise.all(phases.map((phase) => this.#redis.zrangebyscore(`${p}step:${phase}`, low, high)))).flat();
    }
    return ids
      .map((id) => [id, ...id.split('-').map(Number)] as [string, number, number])
      .sort((a, b) => a[1] - b[1] || a[2] - b[2])
      .map(([id]) => id);
  }

  async #run<T>(what: string, action: () => Promise<T>): Promise<T> {
    try {
      return await action();
    } catch (e) {
      throw storeFailure(this.place, what, e);
    }
  }
}

const fieldsOf = (r: TrajectoryRecord): [string, string] => [JSON.stringify(headOf(r)), JSON.stringify(r)];

function chosen(h: TrajectoryHead, f: TrajectoryFilter): boolean {
  if (f.phase !== undefined && h.phase !== f.phase) return false;
  if (f.steps !== undefined && (h.step < f.steps[0] || h.step > f.steps[1])) return false;
  if (f.task !== undefined && h.task !== f.task) return false;
  if (f.group !== undefined && h.group !== f.group) return false;
  return f.version === undefined || (h.version_min !== null && h.version_min <= f.version && h.version_max! >= f.version);
}

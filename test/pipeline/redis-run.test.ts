// Runs that record in a Redis server: the same records as in a file, through a killed trainer, a killed server and a resume.
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { openTrajectoryStore, parseConfig, RunFolder } from '../../actors/index.ts';
import { redisServer } from '../trajectory/redis-server.ts';
import { essence, killing, learnt, root, start } from './tiny-run.ts';

const redis = await redisServer();
t.teardown(() => redis.stop());

t.test('a run records in Redis what it records in its file', { skip: redis.skip ?? false }, async (t) => {
  await start('file', { mode: 'sync' });
  const file = learnt(await essence('file'));
  const store = { mode: 'sync', 'trajectory.store': redis.url };

  const k = killing('redis', { 3: ['trainer'] });
  await start('redis', { ...store, 'trainer.total_training_steps': 4 }, k);
  t.notOk(existsSync(join(root, 'redis', 'trajectories', 'trajectories.db')));
  t.equal(readFileSync(join(root, 'redis', 'trajectories', 'store.url'), 'utf8').trim(), `${redis.url}?run=redis`);
  await redis.restart();
  const resume = { mode: 'sync', output: null, resume: join(root, 'redis') };
  await t.rejects(start('redis', resume), { code: 'SINKFLEX_RESUME', message: /are in redis:.*leave trajectory\.store as it was/ });
  await start('redis', { ...resume, ...store, resume: join(root, 'redis', 'checkpoints', 'step-0000000002') });
  t.strictSame(learnt(await essence('redis')), file);
  const reader = await openTrajectoryStore(`${redis.url}?run=redis`, { readonly: true });
  t.equal(await reader.consumedCount(), 40);
  await reader.close();

  // Another run under the same name would mix with it.
  rmSync(join(root, 'redis'), { recursive: true });
  await t.rejects(start('redis', store), { code: 'SINKFLEX_OUTPUT_EXISTS', message: /\?run=another/ });
  t.strictSame(RunFolder.open(join(root, 'file')).checkpoints(), [0, 2, 4, 5]);
});

t.test('a server that goes away, or is not there, ends the run with its name', { skip: redis.skip ?? false }, async (t) => {
  const own = await redisServer();
  let gone: Promise<void> | undefined;
  const on = (e: { kind: string; phase?: string; done?: number }) => {
    if (e.kind === 'advance' && e.phase === 'grpo' && e.done === 4) gone ??= own.stop();
  };
  const values = { mode: 'sync', 'trajectory.store': own.url };
  await t.rejects(start('outage', values, { on }), { code: 'SINKFLEX_TRAJECTORY_STORE', message: /redis:/ });
  await gone;
  const resumed = start('outage', { ...values, output: null, resume: join(root, 'outage') });
  await t.rejects(resumed, { code: 'SINKFLEX_TRAJECTORY_STORE', message: /cannot open trajectories at redis:/ });
});

t.test('what is no Redis server, and passwords in settings, are refused', (t) => {
  const config = (store: string) => () => parseConfig([{ source: 'test', values: { 'trajectory.store': store } }]);
  t.throws(config('http://127.0.0.1:6379'), { code: 'SINKFLEX_SETTINGS' });
  t.throws(config('redis://me:secret@127.0.0.1:6379/0'), { code: 'SINKFLEX_SETTINGS', message: /SINKFLEX_REDIS_PASSWORD/ });
  t.equal(config('rediss://me@127.0.0.1:6379/0?run=a')().trajectory.store, 'rediss://me@127.0.0.1:6379/0?run=a');
  t.end();
});

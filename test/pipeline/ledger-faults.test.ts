// Runs in which actors are killed: they complete, the ledger balances, and a synchronous run learns the same.
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { readMetrics } from '../../actors/index.ts';
import { os } from '../../kernels/index.ts';
import { balanced, essence, killing, learnt, ledger, pidsOf, read, root, start } from './tiny-run.ts';

t.test('synchronous runs with killed actors end as the one left alone', async (t) => {
  await start('sync', { mode: 'sync' });
  const sync = await essence('sync');

  t.test('a killed trainer goes back to its checkpoint, and a synchronous run ends with the same bits', async (t) => {
    // Checkpoints are written while training goes on: that of step 2 is whole for certain when that of step 4 has begun.
    const k = killing('trainer', { 1: ['trainer'], 5: ['trainer'] });
    const r = await start('trainer', { mode: 'sync' }, k);
    t.match(r, { steps: 5, trajectories: 40, restarts: 2 });
    t.match(k.notes.join('\n'), /goes back to step 0[\s\S]*goes back to step [24]/);
    t.strictSame(learnt(await essence('trainer')), learnt(sync));
    t.equal(read('trainer', 'curve.svg'), read('sync', 'curve.svg'), 'no validation point is lost');
    const l = ledger('trainer');
    t.ok(balanced(l) && l.trained === 40 && l.aborted.rollback! >= 16, JSON.stringify(l));
  });

  t.test('with its moments in the slots a killed trainer loses no step', async (t) => {
    // Not while a checkpoint is written, which goes with its trainer: the first one is there long before.
    const k = killing('slots', { 3: ['trainer'], 4: ['trainer'] });
    const r = await start('slots', { mode: 'sync', 'actor.optim.state_in_slots': true, 'trainer.save_freq': 0 }, k);
    t.match(r, { steps: 5, trajectories: 40, restarts: 2 });
    t.notMatch(k.notes.join('\n'), /goes back/);
    t.strictSame(learnt(await essence('slots')), learnt(sync));
    const l = ledger('slots');
    t.ok(balanced(l) && l.trained === 40 && !l.aborted.rollback, JSON.stringify(l));
  });

  t.test('a trainer killed in the warm start begins it again, and its first attempt is not on record', async (t) => {
    const k = killing('warm', { 4: ['trainer'] }, 'warm start');
    t.match(await start('warm', { mode: 'sync' }, k), { steps: 5, restarts: 1 });
    t.match(k.notes.join('\n'), /warm start, which begins again/);
    t.strictSame(await essence('warm'), sync);
  });

  t.test('a driver that is killed takes everything with it, and its run resumes to the same bits', async (t) => {
    const child = fork(fileURLToPath(new URL('./killed-driver.js', import.meta.url)), [JSON.stringify({ output: join(root, 'driver') })]);
    await new Promise<void>((third) => child.on('message', (step) => step === 3 && third()));
    const pids = pidsOf('driver');
    child.kill('SIGKILL');
    await once(child, 'exit');
    // As if it had been killed in the validation of its checkpoint's step.
    const metrics = join(root, 'driver', 'metrics.jsonl');
    const lines = readFileSync(metrics, 'utf8').split('\n');
    const without = lines.filter((line) => !/"training\/global_step":2,"val-core/.test(line));
    t.equal(without.length, lines.length - 1);
    writeFileSync(metrics, without.join('\n'));
    // And its reference was lost: the checkpoint of step 0 has the same weights.
    rmSync(join(root, 'driver', 'reference'), { recursive: true });
    await start('driver', { mode: 'sync', output: null, resume: join(root, 'driver') });
    t.strictSame(await essence('driver'), sync);
    for (const pid of pids) t.notOk(['R', 'S', 'D', 'T'].includes(os.processState(pid) ?? ''), `${pid} is gone`);
  });

  t.test('killed rollout, environment and reference actors are restarted, and nothing that is learnt changes', async (t) => {
    const k = killing('workers', { 1: ['rollout-0', 'environment-1'], 2: ['reference', 'rollout-1'], 3: ['environment-0', 'reference'] });
    const r = await start('workers', { mode: 'sync' }, k);
    t.match(r, { steps: 5, restarts: 6 });
    t.strictSame(learnt(await essence('workers')), learnt(sync));
    const l = ledger('workers');
    t.ok(balanced(l) && l.trained === 40, JSON.stringify(l));
  });
});

t.test('actors whose processes are stopped, not dead, are replaced too', async (t) => {
  const k = killing('frozen', { 1: ['rollout-0', 'trainer'], 2: ['environment-0'], 3: ['reference'] }, 'grpo', 'SIGSTOP');
  const r = await start('frozen', { mode: 'sync', 'trainer.unresponsive_timeout_s': 1 }, k);
  t.match(r, { steps: 5, restarts: 4 });
  const l = ledger('frozen');
  t.ok(balanced(l) && l.trained === 40, JSON.stringify(l));
});

t.test('asynchronous: staleness is bounded, every kind of actor is killed in mid-flight, the ledger balances at every step', async (t) => {
  const k = killing('async', { 1: ['rollout-0'], 2: ['environment-0', 'rollout-1'], 3: ['trainer'], 4: ['reference'] });
  const r = await start('async', { mode: 'async', 'env.latency': 'lognormal(mean=4ms,sigma=1.0)', 'trainer.total_training_steps': 6 }, k);
  t.match(r, { steps: 6, mode: 'async' });
  t.equal(r.restarts, 5);
  const steps = readMetrics(join(root, 'async', 'metrics.jsonl')).filter((m) => m['actor/pg_loss'] !== undefined);
  t.strictSame(
    steps.map((m) => m['training/global_step']),
    [1, 2, 3, 4, 5, 6],
    'metrics after the checkpoint were cut back',
  );
  for (const m of steps) {
    t.equal(m['ledger/sampled'], m['ledger/trained']! + m['ledger/filtered']! + m['ledger/aborted']! + m['ledger/in_flight']!);
    // Two optimiser steps a batch: one batch of lag is two versions.
    t.ok(m['training/off_policy/trajectory_staleness/max']! <= 2 * 2, `${m['training/off_policy/trajectory_staleness/max']}`);
  }
  const l = ledger('async');
  t.ok(balanced(l) && l.inFlight === 0 && l.trained === 6 * 8, JSON.stringify(l));
  t.ok(l.aborted.rollback! > 0);
});

t.test('stopping ends everything at once and leaves nothing behind', async (t) => {
  const stop = new AbortController();
  const pids: number[] = [];
  let began = 0;
  const running = start(
    'stopped',
    { mode: 'async', 'env.latency': 'fixed(50ms)', 'trainer.total_training_steps': 1000 },
    {
      signal: stop.signal,
      on: (e) => {
        if (e.kind !== 'advance' || e.phase !== 'grpo' || began > 0) return;
        pids.push(...pidsOf('stopped'));
        began = performance.now();
        stop.abort();
      },
    },
  );
  await t.rejects(running, { code: 'SINKFLEX_ABORTED' });
  const tookMs = Math.round(performance.now() - began);
  t.ok(tookMs < 30_000, `ended after ${tookMs} ms`);
  t.ok(pids.length >= 6);
  for (const pid of pids) t.notOk(['R', 'S', 'D', 'T'].includes(os.processState(pid) ?? ''), `${pid} is gone`);
});

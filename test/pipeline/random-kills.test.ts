// Exact resume: a synchronous run whose driver and actors are killed at random, also while a checkpoint is written, ends with the bits of the
// run left alone. SINKFLEX_KILLS kills (5 unless set); SINKFLEX_KILLS_SEED chooses others.
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { watch } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { CounterRandom } from '../../actors/index.ts';
import { essence, learnt, pidOf, root, start } from './tiny-run.ts';

const kills = Number(process.env.SINKFLEX_KILLS ?? 5);
const seed = Number(process.env.SINKFLEX_KILLS_SEED ?? 1);
const steps = 2 * kills;
const values = {
  'trainer.total_training_steps': steps,
  'trainer.save_freq': 1,
  'trainer.test_freq': 4,
  'trainer.max_ckpt_to_keep': 3,
};
const targets = ['driver', 'driver', 'trainer', 'trainer', 'reference', 'rollout-0', 'rollout-1', 'environment-0', 'environment-1'];
/** A run that needs more processes than this does not get on. */
const mostLives = 3 * kills + 3;

t.setTimeout(600_000);

t.test(`${kills} random kills change no bit of a synchronous run`, async (t) => {
  await start('whole', { mode: 'sync', ...values });
  const whole = learnt(await essence('whole', steps));
  const random = new CounterRandom(seed, 0x6b696c6c);
  const folder = join(root, 'killed');
  const done: string[] = [];
  let code: number | null = null;
  let lives = 0;
  while (code !== 0 && lives++ < mostLives) {
    const settings = lives === 1 ? { ...values, output: folder } : { ...values, resume: folder };
    const child = fork(fileURLToPath(new URL('./killed-driver.js', import.meta.url)), [JSON.stringify(settings)], { execArgv: [] });
    const ended = once(child, 'exit');
    killer(child, random, done);
    [code] = (await ended) as [number | null];
  }
  t.comment(`${lives} lives; killed ${done.join(', ')}`);
  t.equal(code, 0);
  t.equal(done.length, kills);
  t.ok(new Set(done.map((d) => d.split(' ')[0])).size > 2, 'of several kinds');
  t.strictSame(learnt(await essence('killed', steps)), whole);
});

/** Kills one process of the run after another, each one or two steps after the last, at a report or while a checkpoint is written. */
function killer(child: ChildProcess, random: CounterRandom, done: string[]): void {
  let wait = 0;
  const arm = () => {
    wait = 1 + random.below(2);
  };
  arm();
  const strike = (target: string, when: string) => {
    if (done.length === kills) return;
    try {
      process.kill(target === 'driver' ? child.pid! : pidOf('killed', target), 'SIGKILL');
      done.push(`${target} ${when}`);
    } catch {
      // It is being restarted just now: another one next time.
    }
    arm();
  };
  child.on('message', (step: number) => {
    if (done.length === kills || wait < 0 || --wait > 0) return;
    const target = random.pick(targets);
    if (random.chance(0.5)) {
      strike(target, `after step ${step}`);
      return;
    }
    // Nothing more until this one has happened.
    wait = -1;
    const watcher = watch(join(root, 'killed', 'checkpoints'), (_, name) => {
      if (!name?.includes('.tmp-')) return;
      watcher.close();
      strike(target, `while a checkpoint was written after step ${step}`);
    });
    child.once('exit', () => watcher.close());
  });
}

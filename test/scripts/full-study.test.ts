/** The full study: a finished run is a line, what has one is not run again, the page is made of the lines. */
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import type { TrainingResult } from '../../actors/index.ts';
import { CONFIGURATIONS, fullStudy, readLines, writeStudyPage } from '../../scripts/full-study.ts';

const score = (mean: number) => ({ mean, low: mean, high: mean, n: 10 });

t.test('goes on where it stopped', async (t) => {
  const folder = join(t.testdir(), 'study');
  const ran: string[] = [];
  let left = 3;
  const starts: (string | undefined)[] = [];
  const run = async (words: readonly string[], seed: number, into: string, start?: string): Promise<TrainingResult> => {
    t.notOk(existsSync(into), 'a folder that is not there');
    mkdirSync(join(into, 'reference'), { recursive: true });
    starts.push(start);
    if (left-- === 0) throw new Error('killed');
    ran.push(`${words.join(' ')} ${seed}`);
    const lines = [0, 10].map((step) => ({
      'training/global_step': step,
      'val-core/desk/reward/mean@1': step / 20,
      'val-core/desk/tasks': 10,
    }));
    writeFileSync(join(into, 'metrics.jsonl'), lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
    return { before: score(0.2), after: score(0.5 + seed / 10), steps: 10, seconds: { grpo: 1 } } as TrainingResult;
  };
  const configurations = CONFIGURATIONS.filter((c) => c.name === 'sync' || c.name === 'rloo');
  const o = { folder, seeds: [1, 2], configurations, words: ['desk'], run, say: () => {} };
  await t.rejects(fullStudy(o), /killed/);
  t.equal(readLines(join(folder, 'study.jsonl')).length, 3);
  // Cut off while a line was written: that run is begun again.
  appendFileSync(join(folder, 'study.jsonl'), '{"config":"rloo","se');
  left = 9;
  const lines = await fullStudy(o);
  const rloo = 'desk algorithm.adv_estimator=rloo';
  t.strictSame(ran, ['desk mode=sync 1', `${rloo} 1`, 'desk mode=sync 2', `${rloo} 2`]);
  const [one, two] = [1, 2].map((seed) => join(folder, `sync-${seed}`, 'reference'));
  t.strictSame(starts, [undefined, one, undefined, two, two], 'one warm start a seed');
  t.strictSame(
    lines.map((line) => [line.config, line.seed, line.after.mean]),
    [
      ['sync', 1, 0.6],
      ['rloo', 1, 0.6],
      ['sync', 2, 0.7],
      ['rloo', 2, 0.7],
    ],
  );
  t.strictSame(lines[0]!.curve, [
    [0, 0],
    [10, 0.5],
  ]);
  t.equal(readFileSync(join(folder, 'study.jsonl'), 'utf8').trim().split('\n').length, 4);

  const docs = join(folder, 'docs');
  t.match(readFileSync(writeStudyPage(lines, docs), 'utf8'), /\| `sync` \| .* \| 2 \| 0\.200 \| 0\.650 \| 0\.600 \| 0\.600 \|/);
  t.match(readFileSync(join(docs, 'images/study-staleness.svg'), 'utf8'), /<svg/);

  // Other settings are another study.
  t.equal((await fullStudy({ ...o, words: ['tiny'], seeds: [1] })).length, 2);
  t.equal(ran.length, 6);
  // Tasks of another level have demonstrations of their own.
  await fullStudy({ ...o, words: ['tiny'], seeds: [1], configurations: CONFIGURATIONS.filter((c) => c.name === 'grpo-hardest') });
  t.strictSame(starts.slice(-3), [undefined, one, undefined]);
});

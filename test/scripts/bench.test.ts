// The bench command: rows that other programs read, and rivals that are not there.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { judged, printRows, ratioOf } from '../../scripts/bench/rows.ts';

// The test runner's hooks would triple the start of every command.
delete process.env.NODE_OPTIONS;

const entry = fileURLToPath(new URL('../../scripts/sinkflex.js', import.meta.url));

function bench(words: string[], env: Record<string, string> = {}) {
  const r = spawnSync(process.execPath, [entry, 'bench', ...words], { encoding: 'utf8', timeout: 50_000, env: { ...process.env, ...env } });
  return {
    code: r.status,
    rows: r.stdout
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as Record<string, unknown>),
    errors: r.stderr,
  };
}

t.test('a flip arrives in another process, and its row can be read by a program', { skip: process.platform !== 'linux' }, async (t) => {
  const { code, rows, errors } = bench(['pipeline', '--rows', 'flip.1mb', '--quick', '--json']);
  t.equal(code, 0, errors);
  t.equal(rows.length, 1);
  t.match(rows[0], {
    suite: 'pipeline',
    row: 'pipeline.flip.1mb',
    unit: 'us',
    ours: Number,
    details: { awake_us: Number, first_decode_us: Number, full_read_ms: Number, bar_us: 200 },
  });
});

t.test('the control plane decides on simulated nodes', async (t) => {
  const { code, rows, errors } = bench(['control', '--rows', 'control.group', '--quick', '--json']);
  t.equal(code, 0, errors);
  t.match(rows, [{ row: 'control.group.10000', unit: 'groups/s', ours: Number, details: { nodes: 10_000, bundles: 4 } }]);
});

t.test('a rival that is not there is a loud, counted skip', async (t) => {
  const { code, rows, errors } = bench(['pipeline', '--rows', 'step.textbook', '--quick', '--peers', '--json'], {
    SINKFLEX_PEERS: '/nowhere/python',
  });
  t.equal(code, 0, errors);
  t.match(rows, [
    { row: 'pipeline.step.textbook', unit: 'tokens/s', ours: Number },
    { row: 'pipeline.step.textbook', skipped: /no Python at \/nowhere\/python/ },
  ]);
  t.match(errors, /SKIPPED 1 of 2 measurements:\n {2}pipeline\.step\.textbook: peer: no Python/);
});

t.test('a row of the runtime has its bar, and Ray is skipped where it is not', async (t) => {
  const { code, rows, errors } = bench(['runtime', '--rows', 'actor.async.thread', '--quick', '--peers', '--json'], {
    SINKFLEX_PEERS: '/nowhere/python',
  });
  t.equal(code, 0, errors);
  t.match(rows, [
    { row: 'actor.async.thread', skipped: /no Python at \/nowhere\/python/ },
    { suite: 'runtime', row: 'actor.async.thread', unit: 'calls/s', ours: Number, bar: '>= 40x', pass: undefined },
  ]);
});

t.test('bars are judged', async (t) => {
  const row = { suite: 's', row: 'a', unit: 'us', ours: 100, peer: 900, ratio: 9 };
  t.match(judged(row, { ratio: 9 }), { bar: '>= 9x', pass: true });
  t.match(judged(row, { ratio: 10 }), { bar: '>= 10x', pass: false });
  t.match(judged(row, { most: 99 }), { bar: '<= 99 us', pass: false });
  t.match(judged(row, { least: 100 }), { bar: '>= 100 us', pass: true });
  t.match(printRows([judged(row, { ratio: 10 })]), /a +100 +900 +9\.00x +us +>= 10x +BELOW/);
});

t.test('ratios say how much better', async (t) => {
  t.equal(ratioOf(200, 100, 'higher'), 2);
  t.equal(ratioOf(50, 100, 'lower'), 2);
  t.equal(
    printRows([
      { suite: 's', row: 'a.b', unit: 'us', ours: 1234.5, peer: 2469, ratio: 2 },
      { suite: 's', row: 'c', skipped: 'no peer' },
    ]),
    'row  ours     peer   ratio  unit\n---  -------  -----  -----  -------\na.b    1,235  2,469  2.00x  us\nc    skipped                no peer',
  );
});

/** Parity with tau2-bench: every call and every reward of its recorded traces. */
import { basename } from 'node:path';
import t from 'tap';
import { absent, compareFile, traceFiles } from './traces.ts';

const missing = absent && `the traces of tau2-bench are not there: ${absent} (TAU2_TRACES, TAU2_DATA)`;
if (missing) t.test('parity', { skip: missing }, async () => {});
else {
  for (const path of traceFiles()) {
    t.test(basename(path), async (t) => {
      const { episodes, calls, skipped, finals, differences } = await compareFile(path);
      t.comment(`${episodes} episodes, ${calls} calls (${skipped} not compared), ${finals} rewards`);
      for (const difference of differences.slice(0, 10)) t.fail(difference);
      t.equal(differences.length, 0, `${differences.length} differences`);
      t.ok(episodes > 0 && calls - skipped > 0);
    });
  }
}

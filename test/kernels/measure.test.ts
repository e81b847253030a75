// What benches measure with: figures that can be, and sizes that cannot.
import t from 'tap';
import { measureFmaPeak, measureLinear } from '../../kernels/index.ts';

t.test('the fma peak of a core and the time of one linear layer', (t) => {
  const peak = measureFmaPeak();
  // Between a tenth of an operation a nanosecond and what no core has.
  t.ok(peak > 1e8 && peak < 2e12, `${peak} operations a second`);
  const { seconds, cpuSeconds } = measureLinear({ rows: 96, in: 200, out: 100, threads: 1 });
  t.ok(seconds > 0 && cpuSeconds > 0);
  t.ok((2 * 96 * 200 * 100) / cpuSeconds < 1.5 * peak, 'a layer is not faster than the arithmetic');
  t.throws(() => measureLinear({ rows: 0, in: 8, out: 8, threads: 1 }), { code: 'SINKFLEX_BAD_ARGUMENT', message: /rows/ });
  t.throws(() => measureLinear({ rows: 8, in: 8, out: 8, threads: 0.5 }), { code: 'SINKFLEX_BAD_ARGUMENT', message: /threads/ });
  t.end();
});

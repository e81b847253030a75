/** Level 2: a list of numbers is filtered, changed and summed up: three choices that are drawn apart. */
import type { CounterRandom } from '../random.ts';
import type { Family } from './tasks.ts';

interface Step<F> {
  spec: string;
  text: string;
  apply: F;
  python: string;
  javascript: string;
}

function keep(r: CounterRandom): Step<(x: number) => boolean> {
  const k = 2 + r.below(8);
  const t = 5 * (1 + r.below(8));
  return r.pick([
    {
      spec: `multiple ${k}`,
      text: `are multiples of ${k}`,
      apply: (x: number) => x % k === 0,
      python: `x % ${k} == 0`,
      javascript: `x % ${k} === 0`,
    },
    {
      spec: `no-multiple ${k}`,
      text: `are not multiples of ${k}`,
      apply: (x: number) => x % k !== 0,
      python: `x % ${k} != 0`,
      javascript: `x % ${k} !== 0`,
    },
    { spec: `above ${t}`, text: `are above ${t}`, apply: (x: number) => x > t, python: `x > ${t}`, javascript: `x > ${t}` },
    { spec: `below ${t}`, text: `are below ${t}`, apply: (x: number) => x < t, python: `x < ${t}`, javascript: `x < ${t}` },
  ]);
}

function change(r: CounterRandom): Step<(x: number) => number> {
  const [k, c] = [2 + r.below(8), 1 + r.below(9)];
  return r.pick([
    { spec: 'square', text: 'squared', apply: (x: number) => x * x, python: 'x * x', javascript: 'x * x' },
    { spec: `times ${k}`, text: `times ${k}`, apply: (x: number) => k * x, python: `${k} * x`, javascript: `${k} * x` },
    { spec: `plus ${c}`, text: `plus ${c}`, apply: (x: number) => x + c, python: `x + ${c}`, javascript: `x + ${c}` },
    {
      spec: `line ${k} ${c}`,
      text: `times ${k}, plus ${c}`,
      apply: (x: number) => k * x + c,
      python: `${k} * x + ${c}`,
      javascript: `${k} * x + ${c}`,
    },
  ]);
}

const ends: readonly Step<(xs: number[]) => number | number[]>[] = [
  {
    spec: 'sum',
    text: 'their sum',
    apply: (xs) => xs.reduce((a, b) => a + b, 0),
    python: 'sum(ys)',
    javascript: 'ys.reduce((a, b) => a + b, 0)',
  },
  {
    spec: 'largest',
    text: 'the largest of them, or 0 if there is none',
    apply: (xs) => Math.max(0, ...xs),
    python: 'max(ys, default=0)',
    javascript: 'Math.max(0, ...ys)',
  },
  {
    spec: 'sorted',
    text: 'all of them in ascending order',
    apply: (xs) => xs.toSorted((a, b) => a - b),
    python: 'sorted(ys)',
    javascript: 'ys.sort((a, b) => a - b)',
  },
  {
    spec: 'reversed',
    text: 'all of them in reversed order',
    apply: (xs) => xs.toReversed(),
    python: 'ys[::-1]',
    javascript: 'ys.reverse()',
  },
  {
    spec: 'distinct',
    text: 'how many different values there are among them',
    apply: (xs) => new Set(xs).size,
    python: 'len(set(ys))',
    javascript: 'new Set(ys).size',
  },
];

export const lists: readonly Family[] = [
  {
    name: 'pipeline',
    level: 2,
    member(r) {
      const [f, g, h] = [keep(r), change(r), r.pick(ends)];
      return {
        spec: `pipeline ${f.spec}, ${g.spec}, ${h.spec}`,
        text: `take the numbers of xs that ${f.text}, each ${g.text}; return ${h.text}`,
        parameters: ['xs'],
        solve: (xs: number[]) => h.apply(xs.filter(f.apply).map(g.apply)),
        draw: (d) => [Array.from({ length: d.below(9) }, () => d.below(60))],
        python: `ys = [${g.python} for x in xs if ${f.python}]\nreturn ${h.python}`,
        javascript: `const ys = xs.filter((x) => ${f.javascript}).map((x) => ${g.javascript});\nreturn ${h.javascript};`,
      };
    },
  },
  {
    name: 'neighbours',
    level: 2,
    member(r) {
      const k = 1 + r.below(12);
      const how = r.pick(['more', 'less'] as const);
      const sign = how === 'more' ? '>' : '<';
      return {
        spec: `neighbours ${how} ${k}`,
        text: `in how many places of xs a number and the next one differ by ${how} than ${k}`,
        parameters: ['xs'],
        solve: (xs: number[]) =>
          xs.slice(1).filter((x, i) => (how === 'more' ? Math.abs(x - xs[i]!) > k : Math.abs(x - xs[i]!) < k)).length,
        draw: (d) => [Array.from({ length: d.below(10) }, () => d.below(30))],
        python: `return sum(abs(a - b) ${sign} ${k} for a, b in zip(xs, xs[1:]))`,
        javascript: `return xs.slice(1).filter((x, i) => Math.abs(x - xs[i]) ${sign} ${k}).length;`,
      };
    },
  },
  {
    name: 'every',
    level: 2,
    member(r) {
      const [k, from] = [2 + r.below(4), r.below(3)];
      return {
        spec: `every ${k} ${from}`,
        text: `every ${k}. number of xs, beginning with the one at index ${from}, as a list`,
        parameters: ['xs'],
        solve: (xs: number[]) => xs.filter((_, i) => i >= from && (i - from) % k === 0),
        draw: (d) => [Array.from({ length: d.below(12) }, () => d.below(100))],
        python: `return xs[${from}::${k}]`,
        javascript: `return xs.filter((_, i) => i >= ${from} && (i - ${from}) % ${k} === 0);`,
      };
    },
  },
];

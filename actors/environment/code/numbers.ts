/** Level 1: a number from one or two numbers. */
import type { Family } from './tasks.ts';

const small = (r: { below(n: number): number }, low = 2, high = 9): number => low + r.below(high - low + 1);

export const numbers: readonly Family[] = [
  {
    name: 'linear',
    level: 1,
    member(r) {
      const [k, m, c] = [small(r), small(r), small(r, 0, 9)];
      return {
        spec: `linear ${k} ${m} ${c}`,
        text: `${k} times a plus ${m} times b plus ${c}`,
        parameters: ['a', 'b'],
        solve: (a: number, b: number) => k * a + m * b + c,
        draw: (d) => [d.below(50), d.below(50)],
        python: `return ${k} * a + ${m} * b + ${c}`,
        javascript: `return ${k} * a + ${m} * b + ${c};`,
      };
    },
  },
  {
    name: 'difference',
    level: 1,
    member(r) {
      const k = small(r);
      const how = r.pick(['larger', 'smaller'] as const);
      const [python, javascript] = how === 'larger' ? ['max', 'Math.max'] : ['min', 'Math.min'];
      return {
        spec: `difference ${how} ${k}`,
        text: `the ${how} of a and b, times ${k}, minus the other one`,
        parameters: ['a', 'b'],
        solve: (a: number, b: number) => {
          const chosen = how === 'larger' ? Math.max(a, b) : Math.min(a, b);
          return k * chosen - (a + b - chosen);
        },
        draw: (d) => [d.below(60), d.below(60)],
        python: `x = ${python}(a, b)\nreturn ${k} * x - (a + b - x)`,
        javascript: `const x = ${javascript}(a, b);\nreturn ${k} * x - (a + b - x);`,
      };
    },
  },
  {
    name: 'multiples',
    level: 1,
    member(r) {
      const [k, m] = [small(r), small(r, 0, 9)];
      return {
        spec: `multiples ${k} ${m}`,
        text: `how many numbers from 1 to n are multiples of ${k}, plus ${m}`,
        parameters: ['n'],
        solve: (n: number) => Math.floor(n / k) + m,
        draw: (d) => [d.below(400)],
        python: `return n // ${k} + ${m}`,
        javascript: `return Math.floor(n / ${k}) + ${m};`,
      };
    },
  },
  {
    name: 'digits',
    level: 1,
    member(r) {
      const k = small(r);
      const what = r.pick(['sum', 'count'] as const);
      return {
        spec: `digits ${what} ${k}`,
        text: what === 'sum' ? `the sum of the digits of n, times ${k}` : `how many digits n has, times ${k}`,
        parameters: ['n'],
        solve: (n: number) => k * (what === 'sum' ? [...String(n)].reduce((s, d) => s + Number(d), 0) : String(n).length),
        draw: (d) => [d.below(10 ** (1 + d.below(6)))],
        python: what === 'sum' ? `return ${k} * sum(int(d) for d in str(n))` : `return ${k} * len(str(n))`,
        javascript: what === 'sum' ? `return ${k} * [...String(n)].reduce((s, d) => s + Number(d), 0);` : `return ${k} * String(n).length;`,
      };
    },
  },
  {
    name: 'remainder',
    level: 1,
    member(r) {
      const [k, c] = [small(r, 3, 19), small(r, 1, 9)];
      return {
        spec: `remainder ${k} ${c}`,
        text: `the remainder of a times b plus ${c} after division by ${k}`,
        parameters: ['a', 'b'],
        solve: (a: number, b: number) => (a * b + c) % k,
        draw: (d) => [d.below(80), d.below(80)],
        python: `return (a * b + ${c}) % ${k}`,
        javascript: `return (a * b + ${c}) % ${k};`,
      };
    },
  },
];

/** Level 4: loops with a state. */
import type { Family } from './tasks.ts';

export const algorithms: readonly Family[] = [
  {
    name: 'primes',
    level: 4,
    member(r) {
      const [k, rest] = [3 + r.below(6), r.below(3)];
      return {
        spec: `primes ${k} ${rest}`,
        text: `how many primes up to n leave ${rest} when divided by ${k}`,
        parameters: ['n'],
        solve: (n: number) => {
          let count = 0;
          for (let p = 2; p <= n; p++) {
            let prime = true;
            for (let d = 2; d * d <= p; d++) if (p % d === 0) prime = false;
            if (prime && p % k === rest) count++;
          }
          return count;
        },
        draw: (d) => [d.below(200)],
        python: `count = 0\nfor p in range(2, n + 1):\n    if all(p % d for d in range(2, int(p ** 0.5) + 1)) and p % ${k} == ${rest}:\n        count += 1\nreturn count`,
        javascript: `let count = 0;\nfor (let p = 2; p <= n; p++) {\n    let prime = true;\n    for (let d = 2; d * d <= p; d++) if (p % d === 0) prime = false;\n    if (prime && p % ${k} === ${rest}) count++;\n}\nreturn count;`,
      };
    },
  },
  {
    name: 'walk',
    level: 4,
    member(r) {
      const [a, c, m] = [2 + r.below(7), 1 + r.below(9), 11 + r.below(40)];
      return {
        spec: `walk ${a} ${c} ${m}`,
        text: `where one stands after n steps from 1, if each step goes from x to the remainder of ${a} times x plus ${c} after division by ${m}`,
        parameters: ['n'],
        solve: (n: number) => {
          let x = 1;
          for (let i = 0; i < n; i++) x = (a * x + c) % m;
          return x;
        },
        draw: (d) => [d.below(60)],
        python: `x = 1\nfor _ in range(n):\n    x = (${a} * x + ${c}) % ${m}\nreturn x`,
        javascript: `let x = 1;\nfor (let i = 0; i < n; i++) x = (${a} * x + ${c}) % ${m};\nreturn x;`,
      };
    },
  },
  {
    name: 'base',
    level: 4,
    member(r) {
      const b = 2 + r.below(8);
      const zeros = r.chance(0.5);
      return {
        spec: `base ${b} ${zeros}`,
        text: zeros ? `how many zeros n has when it is written in base ${b}` : `n written in base ${b}, as a text`,
        parameters: ['n'],
        solve: (n: number) => (zeros ? [...n.toString(b)].filter((d) => d === '0').length : n.toString(b)),
        draw: (d) => [d.below(3000)],
        python: `digits = ""\nwhile True:\n    digits = str(n % ${b}) + digits\n    n //= ${b}\n    if n == 0:\n        return ${zeros ? 'digits.count("0")' : 'digits'}`,
        javascript: zeros ? `return [...n.toString(${b})].filter((d) => d === "0").length;` : `return n.toString(${b});`,
      };
    },
  },
  {
    name: 'streak',
    level: 4,
    member(r) {
      const k = r.below(6);
      const how = r.pick(['rises', 'falls'] as const);
      const sign = how === 'rises' ? '>' : '<';
      return {
        spec: `streak ${how} ${k}`,
        text: `the length of the longest stretch of xs in which each number ${how} by more than ${k}; 0 for an empty list`,
        parameters: ['xs'],
        solve: (xs: number[]) => {
          let [best, run] = [0, 0];
          xs.forEach((x, i) => {
            const step = i === 0 ? Number.NaN : how === 'rises' ? x - xs[i - 1]! : xs[i - 1]! - x;
            run = step > k ? run + 1 : 1;
            best = Math.max(best, run);
          });
          return best;
        },
        draw: (d) => [Array.from({ length: d.below(12) }, () => d.below(40))],
        python: `best = run = 0\nfor i, x in enumerate(xs):\n    run = run + 1 if i and x ${sign} xs[i - 1] ${how === 'rises' ? `+ ${k}` : `- ${k}`} else 1\n    best = max(best, run)\nreturn best`,
        javascript: `let best = 0, run = 0;\nxs.forEach((x, i) => {\n    run = i && x ${sign} xs[i - 1] ${how === 'rises' ? `+ ${k}` : `- ${k}`} ? run + 1 : 1;\n    best = Math.max(best, run);\n});\nreturn best;`,
      };
    },
  },
  {
    name: 'pairs',
    level: 4,
    member(r) {
      const t = 10 + r.below(40);
      return {
        spec: `pairs ${t}`,
        text: `how many pairs of different places in xs hold numbers whose sum is ${t}`,
        parameters: ['xs'],
        solve: (xs: number[]) => xs.reduce((n, a, i) => n + xs.slice(i + 1).filter((b) => a + b === t).length, 0),
        draw: (d) => [Array.from({ length: d.below(12) }, () => (d.chance(0.4) ? Math.floor(t / 2) + d.below(3) - 1 : d.below(t)))],
        python: `count = 0\nfor i in range(len(xs)):\n    for j in range(i):\n        if xs[i] + xs[j] == ${t}:\n            count += 1\nreturn count`,
        javascript: `let count = 0;\nfor (let i = 0; i < xs.length; i++) for (let j = 0; j < i; j++) if (xs[i] + xs[j] === ${t}) count++;\nreturn count;`,
      };
    },
  },
  {
    name: 'grid',
    level: 4,
    member(r) {
      const k = 2 + r.below(6);
      const what = r.pick(['rows', 'columns'] as const);
      return {
        spec: `grid ${what} ${k}`,
        text: `the sums of the ${what} of the grid (a list of rows of the same length), as a list, each reduced to its remainder after division by ${k}`,
        parameters: ['grid'],
        solve: (grid: number[][]) => {
          const sums = what === 'rows' ? grid : (grid[0] ?? []).map((_, i) => grid.map((row) => row[i]!));
          return sums.map((line) => line.reduce((a, b) => a + b, 0) % k);
        },
        draw: (d) => {
          const [h, w] = [1 + d.below(4), 1 + d.below(4)];
          return [Array.from({ length: h }, () => Array.from({ length: w }, () => d.below(20)))];
        },
        python: `return [sum(line) % ${k} for line in ${what === 'rows' ? 'grid' : 'zip(*grid)'}]`,
        javascript:
          what === 'rows'
            ? `return grid.map((row) => row.reduce((a, b) => a + b, 0) % ${k});`
            : `return grid[0].map((_, i) => grid.reduce((a, row) => a + row[i], 0) % ${k});`,
      };
    },
  },
];

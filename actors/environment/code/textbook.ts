/**
 * The three tasks of the textbook. They are graded by what a program prints, so an agent could print the answer without computing it; they
 * are for a first look, and no other task is graded so.
 */
import type { CodeLanguage } from './tasks.ts';

export interface StdoutTask {
  name: string;
  text: Record<CodeLanguage, string>;
  /** The last line that must be printed. */
  expected: Record<CodeLanguage, string>;
  solution: Record<CodeLanguage, string>;
}

const asked = (what: string): Record<CodeLanguage, string> => ({
  python: `Write a Python program that ${what}.`,
  javascript: `Write a JavaScript program that ${what}.`,
});

export const TEXTBOOK: readonly StdoutTask[] = [
  {
    name: 'fibonacci',
    text: asked('computes the 10th Fibonacci number (the first two are 1) and prints it'),
    expected: { python: '55', javascript: '55' },
    solution: {
      python: 'a, b = 0, 1\nfor _ in range(10):\n    a, b = b, a + b\nprint(a)',
      javascript: 'let [a, b] = [0, 1];\nfor (let i = 0; i < 10; i++) [a, b] = [b, a + b];\nconsole.log(a);',
    },
  },
  {
    name: 'palindrome',
    text: asked('checks whether the text "never odd or even" is a palindrome when spaces are left out, and prints yes or no'),
    expected: { python: 'yes', javascript: 'yes' },
    solution: {
      python: 's = "never odd or even".replace(" ", "")\nprint("yes" if s == s[::-1] else "no")',
      javascript: 'const s = "never odd or even".replaceAll(" ", "");\nconsole.log(s === [...s].reverse().join("") ? "yes" : "no");',
    },
  },
  {
    name: 'bubble sort',
    text: asked('sorts the numbers 5 2 9 1 7 by bubble sort and prints them in one line, separated by spaces'),
    expected: { python: '1 2 5 7 9', javascript: '1 2 5 7 9' },
    solution: {
      python:
        'xs = [5, 2, 9, 1, 7]\nfor n in range(len(xs), 1, -1):\n    for i in range(n - 1):\n        if xs[i] > xs[i + 1]:\n            xs[i], xs[i + 1] = xs[i + 1], xs[i]\nprint(*xs)',
      javascript:
        'const xs = [5, 2, 9, 1, 7];\nfor (let n = xs.length; n > 1; n--)\n    for (let i = 0; i < n - 1; i++) if (xs[i] > xs[i + 1]) [xs[i], xs[i + 1]] = [xs[i + 1], xs[i]];\nconsole.log(xs.join(" "));',
    },
  },
];

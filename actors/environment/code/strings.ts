/** Level 3: texts of lower-case letters and words. */
import type { CounterRandom } from '../random.ts';
import type { Family } from './tasks.ts';

const LETTERS = 'abcdefghijklmnopqrstuvwxyz';
const SYLLABLES = ['ba', 'do', 'ki', 'lu', 'me', 'no', 'ra', 'si', 'ta', 've', 'zo', 'en', 'ar', 'ol', 'it'] as const;

const word = (d: CounterRandom, most = 4): string => Array.from({ length: 1 + d.below(most) }, () => d.pick(SYLLABLES)).join('');
const words = (d: CounterRandom, most = 6): string => Array.from({ length: 1 + d.below(most) }, () => word(d, 3)).join(' ');

export const strings: readonly Family[] = [
  {
    name: 'letters',
    level: 3,
    member(r) {
      const chosen = r
        .sample([...'aeiodlrstn'], 1 + r.below(3))
        .sort()
        .join('');
      return {
        spec: `letters ${chosen}`,
        text: `how many characters of s are among "${chosen}"`,
        parameters: ['s'],
        solve: (s: string) => [...s].filter((c) => chosen.includes(c)).length,
        draw: (d) => [words(d)],
        python: `return sum(c in "${chosen}" for c in s)`,
        javascript: `return [...s].filter((c) => "${chosen}".includes(c)).length;`,
      };
    },
  },
  {
    name: 'shift',
    level: 3,
    member(r) {
      const k = 1 + r.below(25);
      return {
        spec: `shift ${k}`,
        text: `s with each letter moved ${k} places on in the alphabet, from z on to a; spaces stay`,
        parameters: ['s'],
        solve: (s: string) => s.replace(/[a-z]/g, (c) => LETTERS[(LETTERS.indexOf(c) + k) % 26]!),
        draw: (d) => [words(d, 3)],
        python: `return "".join(chr((ord(c) - 97 + ${k}) % 26 + 97) if c != " " else c for c in s)`,
        javascript: `return [...s].map((c) => (c === " " ? c : String.fromCharCode(((c.charCodeAt(0) - 97 + ${k}) % 26) + 97))).join("");`,
      };
    },
  },
  {
    name: 'long words',
    level: 3,
    member(r) {
      const k = 2 + r.below(5);
      const how = r.pick(['count', 'join', 'first'] as const);
      const text = {
        count: `how many words of s have more than ${k} letters`,
        join: `the words of s with more than ${k} letters, in their order, joined by "-"`,
        first: `the first word of s with more than ${k} letters, or "none"`,
      }[how];
      const list = `[w for w in s.split() if len(w) > ${k}]`;
      const array = `s.split(" ").filter((w) => w.length > ${k})`;
      return {
        spec: `long words ${how} ${k}`,
        text,
        parameters: ['s'],
        solve: (s: string) => {
          const long = s.split(' ').filter((w) => w.length > k);
          return how === 'count' ? long.length : how === 'join' ? long.join('-') : (long[0] ?? 'none');
        },
        draw: (d) => [words(d)],
        python: how === 'count' ? `return len(${list})` : how === 'join' ? `return "-".join(${list})` : `return (${list} + ["none"])[0]`,
        javascript:
          how === 'count' ? `return ${array}.length;` : how === 'join' ? `return ${array}.join("-");` : `return ${array}[0] ?? "none";`,
      };
    },
  },
  {
    name: 'runs',
    level: 3,
    member(r) {
      const k = 1 + r.below(4);
      return {
        spec: `runs ${k}`,
        text: `s with each run of the same letter cut to at most ${k}`,
        parameters: ['s'],
        solve: (s: string) => s.replace(/(.)\1*/g, (run: string) => run.slice(0, k)),
        draw: (d) => [Array.from({ length: 1 + d.below(5) }, () => d.pick([...'abc']).repeat(1 + d.below(6))).join('')],
        python: `import re\nreturn re.sub(r"(.)\\1*", lambda m: m.group(0)[:${k}], s)`,
        javascript: `return s.replace(/(.)\\1*/g, (run) => run.slice(0, ${k}));`,
      };
    },
  },
  {
    name: 'turned words',
    level: 3,
    member(r) {
      const at = r.below(3);
      const k = 2 + r.below(3);
      return {
        spec: `turned words ${k} ${at}`,
        text: `s with every ${k}. word, beginning with word ${at + 1}, written backwards`,
        parameters: ['s'],
        solve: (s: string) =>
          s
            .split(' ')
            .map((w, i) => (i >= at && (i - at) % k === 0 ? [...w].reverse().join('') : w))
            .join(' '),
        draw: (d) => [words(d)],
        python: `return " ".join(w[::-1] if i >= ${at} and (i - ${at}) % ${k} == 0 else w for i, w in enumerate(s.split()))`,
        javascript: `return s.split(" ").map((w, i) => (i >= ${at} && (i - ${at}) % ${k} === 0 ? [...w].reverse().join("") : w)).join(" ");`,
      };
    },
  },
];

/** The notes that `search` looks through: how common things are written in both languages. Ranked by the words that they share with a query. */

export interface Note {
  title: string;
  text: string;
}

export const NOTES: readonly Note[] = [
  { title: 'sum of a list', text: 'Python: sum(xs). JavaScript: xs.reduce((a, b) => a + b, 0).' },
  { title: 'largest and smallest number', text: 'Python: max(xs), min(xs, default=0). JavaScript: Math.max(...xs), Math.min(...xs).' },
  { title: 'filter a list', text: 'Python: [x for x in xs if x > 3]. JavaScript: xs.filter((x) => x > 3).' },
  { title: 'change every item, map', text: 'Python: [x * x for x in xs]. JavaScript: xs.map((x) => x * x).' },
  { title: 'sort numbers', text: 'Python: sorted(xs). JavaScript: xs.sort((a, b) => a - b); without the function it sorts as texts.' },
  { title: 'reverse', text: 'Python: xs[::-1] for lists and texts. JavaScript: xs.reverse(); for a text [...s].reverse().join("").' },
  {
    title: 'slice with a step, every second item',
    text: 'Python: xs[start::step]. JavaScript: xs.filter((_, i) => i >= start && (i - start) % step === 0).',
  },
  { title: 'count different values, set', text: 'Python: len(set(xs)). JavaScript: new Set(xs).size.' },
  { title: 'remainder and whole division', text: 'Python: a % b, a // b. JavaScript: a % b (keeps the sign of a), Math.floor(a / b).' },
  { title: 'digits of a number', text: 'Python: [int(d) for d in str(n)]. JavaScript: [...String(n)].map(Number).' },
  { title: 'number in another base', text: 'Python: divide by the base in a loop, format(n, "b") for two. JavaScript: n.toString(base).' },
  { title: 'prime number', text: 'A number p above 1 is prime if no d with d * d <= p divides it.' },
  { title: 'greatest common divisor', text: 'Python: math.gcd(a, b). JavaScript: while (b) [a, b] = [b, a % b]; the answer is a.' },
  { title: 'words of a text', text: 'Python: s.split(). JavaScript: s.split(" "). Back: " ".join(words), words.join(" ").' },
  {
    title: 'count characters',
    text: 'Python: s.count("a"), sum(c in "aeiou" for c in s). JavaScript: [...s].filter((c) => "aeiou".includes(c)).length.',
  },
  {
    title: 'shift letters, alphabet, caesar',
    text: 'Python: chr((ord(c) - 97 + k) % 26 + 97). JavaScript: String.fromCharCode(((c.charCodeAt(0) - 97 + k) % 26) + 97).',
  },
  {
    title: 'regular expression, run of the same letter',
    text: 'The pattern (.)\\1* matches a run. Python: re.sub(pattern, function, s). JavaScript: s.replace(/(.)\\1*/g, f).',
  },
  { title: 'neighbours, pairs of a list', text: 'Python: zip(xs, xs[1:]). JavaScript: xs.slice(1).map((x, i) => [xs[i], x]).' },
  { title: 'index and item in a loop, enumerate', text: 'Python: for i, x in enumerate(xs). JavaScript: xs.forEach((x, i) => ...).' },
  { title: 'columns of a grid, transpose', text: 'Python: zip(*grid). JavaScript: grid[0].map((_, i) => grid.map((row) => row[i])).' },
  { title: 'absolute difference', text: 'Python: abs(a - b). JavaScript: Math.abs(a - b).' },
  { title: 'print', text: 'Python: print(x). JavaScript: console.log(x).' },
  { title: 'define a function', text: 'Python: def solve(a, b): return a + b. JavaScript: function solve(a, b) { return a + b; }.' },
  { title: 'fibonacci', text: 'Begin with 0 and 1; each next number is the sum of the two before it.' },
  { title: 'palindrome', text: 'A text is a palindrome if it equals its reverse.' },
  { title: 'bubble sort', text: 'Swap neighbours that stand in the wrong order, pass after pass, until nothing is swapped.' },
];

const wordsOf = (text: string): string[] => text.toLowerCase().match(/[a-z0-9]{2,}/g) ?? [];
const indexed = NOTES.map((note) => ({ note, title: new Set(wordsOf(note.title)), text: new Set(wordsOf(note.text)) }));
const frequency = new Map<string, number>();
for (const { title, text } of indexed) for (const word of new Set([...title, ...text])) frequency.set(word, (frequency.get(word) ?? 0) + 1);

/** The best notes for a query, best first: rare words weigh more, words of the title twice. */
export function searchNotes(query: string, limit = 3): Note[] {
  const asked = [...new Set(wordsOf(query))];
  const weight = (word: string): number => Math.log(1 + NOTES.length / (frequency.get(word) ?? Number.POSITIVE_INFINITY));
  return indexed
    .map(({ note, title, text }, i) => ({
      note,
      i,
      score: asked.reduce((sum, w) => sum + weight(w) * ((title.has(w) ? 2 : 0) + (text.has(w) ? 1 : 0)), 0),
    }))
    .filter((hit) => hit.score > 0)
    .sort((a, b) => b.score - a.score || a.i - b.i)
    .slice(0, limit)
    .map((hit) => hit.note);
}

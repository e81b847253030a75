/** Code tasks drawn from a seed: what is asked, examples that are shown, tests that are not, and solutions in both languages. */
import { CounterRandom, threefry } from '../random.ts';
import { isValidationTask } from '../seeds.ts';
import { algorithms } from './algorithms.ts';
import { lists } from './lists.ts';
import { numbers } from './numbers.ts';
import { strings } from './strings.ts';

export type Json = null | boolean | number | string | Json[];
export type CodeLanguage = 'python' | 'javascript';

/** One drawn member of a family: everything about a function `solve`. */
export interface Member {
  /** Says which one it is: members with the same text are the same task. */
  spec: string;
  /** What solve returns, for people. */
  text: string;
  /** Names of solve's parameters. */
  parameters: readonly string[];
  solve(...args: never[]): Json;
  /** One call's arguments. */
  draw(random: CounterRandom): Json[];
  /** Bodies of `solve`, indented by nothing. */
  python: string;
  javascript: string;
}

export interface Family {
  name: string;
  level: number;
  member(random: CounterRandom): Member;
}

export interface TestCase {
  args: Json[];
  expected: Json;
}

export interface CodeTask {
  seed: number;
  level: number;
  family: string;
  language: CodeLanguage;
  spec: string;
  text: string;
  /** Shown. */
  examples: TestCase[];
  /** Never shown, and never in the sandbox that the agent has. */
  tests: TestCase[];
  /** A right program. */
  solution: string;
  /** Another member of the family, whose program is wrong here: the material of erring demonstrations. */
  mistaken: { solution: string; solve(...args: never[]): Json };
}

export const FAMILIES: readonly Family[] = [...numbers, ...lists, ...strings, ...algorithms];
export const LEVELS = 4;

const EXAMPLES = 2;
const TESTS = 8;
/** One task of so many belongs to validation. */
const VALIDATION_SHARE = 5;
const SPLIT = 0x636f6465; // 'code'

/**
 * The task of a seed. Which tasks are for validation is a property of the task, not of the seed: a seed with the top bit set gets one of them
 * and any other seed gets none, so that no task is on both sides.
 */
export function generateTask(seed: number, level: number, language: CodeLanguage): CodeTask {
  const random = new CounterRandom(seed, SPLIT ^ level);
  const families = FAMILIES.filter((f) => f.level === level);
  for (;;) {
    const family = random.pick(families);
    const member = family.member(random);
    if (isHeldOut(member.spec) !== isValidationTask(seed)) continue;
    const cases = distinctCases(member, random, EXAMPLES + TESTS);
    let other = family.member(random);
    for (let tries = 0; tries < 20 && other.spec === member.spec; tries++) other = family.member(random);
    return {
      seed,
      level,
      family: family.name,
      language,
      spec: member.spec,
      text: member.text,
      examples: cases.slice(0, EXAMPLES),
      tests: cases.slice(EXAMPLES),
      solution: programOf(member, language),
      mistaken: { solution: programOf(other, language), solve: other.solve },
    };
  }
}

export function isHeldOut(spec: string): boolean {
  const block = new Uint32Array([0, 0]);
  for (const byte of Buffer.from(spec)) threefry(SPLIT, byte, block[0]!, block[1]!, block);
  return block[0]! % VALIDATION_SHARE === 0;
}

/** What solve answers; a copy each, for a program may change its arguments. */
export const evaluate = (solve: Member['solve'], args: Json[]): Json => solve(...(structuredClone(args) as never[]));

function distinctCases(member: Member, random: CounterRandom, count: number): TestCase[] {
  const cases = new Map<string, TestCase>();
  for (let tries = 0; cases.size < count && tries < 50 * count; tries++) {
    const args = member.draw(random);
    cases.set(JSON.stringify(args), { args, expected: evaluate(member.solve, args) });
  }
  return [...cases.values()];
}

function programOf(member: Member, language: CodeLanguage): string {
  const body = language === 'python' ? member.python : member.javascript;
  const lines = body.split('\n').map((line) => `    ${line}`);
  const parameters = member.parameters.join(', ');
  return language === 'python'
    ? `def solve(${parameters}):\n${lines.join('\n')}`
    : `function solve(${parameters}) {\n${lines.join('\n')}\n}`;
}

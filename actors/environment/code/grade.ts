/**
 * Grading under `hidden_tests`: the submitted program runs in a sandbox of its own, which the agent never had, and answers calls; whether the
 * answers are right is decided here. The program sees the arguments, never what is expected, so nothing that it prints or forges is worth
 * more than the right answers themselves. A random word marks the line of answers among whatever else it prints.
 */
import { randomBytes } from 'node:crypto';
import type { ExecStatus, SandboxProvider } from '../../sandbox/index.ts';
import type { CodeLanguage, Json, TestCase } from './tasks.ts';

export interface Grade {
  passed: number;
  total: number;
  /** How the program ended. */
  status: ExecStatus;
}

const HARNESS: Record<CodeLanguage, string> = {
  python: `import sys, json
given = json.loads(sys.stdin.read())
space = {"__name__": "solution"}
exec(compile(given["code"], "solution.py", "exec"), space)
out = []
for args in given["cases"]:
    try:
        value = space["solve"](*args)
        json.dumps(value, allow_nan=False)
        out.append([1, value])
    except Exception as e:
        out.append([0, type(e).__name__])
print()
print(given["mark"] + json.dumps(out))
`,
  javascript: `const given = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const solve = new Function(given.code + '\\nreturn solve;')();
const out = given.cases.map((args) => {
  try {
    const value = solve(...args);
    return JSON.stringify(value) === undefined ? [0, 'undefined'] : [1, value];
  } catch (e) {
    return [0, String(e && e.name)];
  }
});
console.log('\\n' + given.mark + JSON.stringify(out));
`,
};

/** Throws SINKFLEX_SANDBOX_LOST where the machinery failed; a program that fails in any way of its own passes nothing. */
export async function grade(
  provider: SandboxProvider,
  o: { code: string; language: CodeLanguage; tests: readonly TestCase[]; timeoutMs: number },
): Promise<Grade> {
  const mark = `answers-${randomBytes(12).toString('hex')} `;
  const sandbox = await provider.create({ labels: { purpose: 'grading' } });
  try {
    const result = await sandbox.exec({
      language: o.language,
      code: HARNESS[o.language],
      stdin: JSON.stringify({ mark, code: o.code, cases: o.tests.map((test) => test.args) }),
      timeoutMs: o.timeoutMs,
      maxOutputBytes: 2 ** 20,
    });
    const line = result.stdout.split('\n').findLast((text) => text.startsWith(mark));
    const answers = result.status === 'exit' && line !== undefined ? read(line.slice(mark.length)) : [];
    const passed = o.tests.filter((test, i) => answers[i]?.[0] === 1 && same(answers[i]![1], test.expected)).length;
    return { passed, total: o.tests.length, status: result.status };
  } finally {
    await sandbox.close();
  }
}

function read(text: string): [number, Json][] {
  try {
    const parsed = JSON.parse(text) as unknown;
    return Array.isArray(parsed) && parsed.every((one) => Array.isArray(one)) ? (parsed as [number, Json][]) : [];
  } catch {
    return [];
  }
}

/** Numbers are numbers: 2.0 is 2. True is not 1. */
export function same(a: Json, b: Json): boolean {
  if (Array.isArray(a) && Array.isArray(b)) return a.length === b.length && a.every((one, i) => same(one, b[i]!));
  return a === b;
}

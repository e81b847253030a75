// The code environment: what its tasks promise, how turns are read, and what a reward can and cannot be earned by.
import fc from 'fast-check';
import t from 'tap';
import {
  Chat,
  CodeEnvironment,
  checkEnvironment,
  closeSharedSandboxes,
  codeBytes,
  codeTools,
  entry,
  episodeIds,
  FAMILIES,
  generateTask,
  grade,
  isHeldOut,
  isInfrastructureFailure,
  makeSandboxProvider,
  parseCodeTurn,
  registerSandboxProvider,
  type SandboxProvider,
  searchNotes,
  TEXTBOOK,
} from '../../actors/index.ts';
import { whyNoSandbox } from '../sandbox/support.ts';

const reason = (await whyNoSandbox()) ?? false;
t.teardown(closeSharedSandboxes);

const TOP = 0x80000000;
const turn = (text: string) => parseCodeTurn(text);
const fenced = (code: string, language = 'python') => turn(`\`\`\`${language}\n${code}\n\`\`\``);
const play = async (e: CodeEnvironment, ...actions: ReturnType<typeof turn>[]) => {
  for (const action of actions) {
    const step = await e.step(action);
    if (step.terminated || step.truncated) return step;
  }
  throw new Error('the episode goes on');
};

t.test('tasks: hundreds, the same for a seed, and never on both sides', async (t) => {
  const sides = [new Set<string>(), new Set<string>()] as const;
  for (let level = 1; level <= 4; level++) {
    for (let i = 0; i < 300; i++) {
      const seed = (i * 2654435761) >>> 0;
      const task = generateTask(seed, level, 'python');
      const side = Number(seed >= TOP) as 0 | 1;
      sides[side].add(task.spec);
      if (isHeldOut(task.spec) !== (side === 1)) t.fail(`${task.spec} is on the wrong side`);
      if (task.tests.length + task.examples.length < 6) t.fail(`${task.spec} has ${task.tests.length} tests`);
      const shown = task.examples.map((e) => JSON.stringify(e.args));
      if (task.tests.some((test) => shown.includes(JSON.stringify(test.args)))) t.fail(`${task.spec} shows a test`);
      if (i < 20) t.same({ ...generateTask(seed, level, 'python'), mistaken: 0 }, { ...task, mistaken: 0 });
    }
  }
  t.ok(sides[0].size > 300 && sides[1].size > 150, `${sides[0].size} to train on, ${sides[1].size} held out`);
  t.same(
    [...sides[0]].filter((spec) => sides[1].has(spec)),
    [],
  );
});

t.test('turns as models write them', async (t) => {
  const call = (text: string) => turn(text).toolCalls.map((c) => [c.name, c.arguments]);
  t.same(call('Let me see.\n```python\nprint(1)\n```\n'), [['execute_code', { code: 'print(1)', language: 'python' }]]);
  t.same(call('```js\nconsole.log(1);\n```'), [['execute_code', { code: 'console.log(1);', language: 'javascript' }]]);
  t.same(call('```\nx\n```'), [['execute_code', { code: 'x' }]], 'a fence without a language');
  t.same(call('```python\nprint(1)'), [['execute_code', { code: 'print(1)', language: 'python' }]], 'cut off');
  t.same(call('```python\na\n```\nno, better:\n```python\nb\n```'), [['execute_code', { code: 'b', language: 'python' }]], 'the last one');
  t.same(call('FINAL ANSWER: def solve(): pass'), [['finish', { answer: 'def solve(): pass' }]]);
  t.same(call('FINAL ANSWER\n```python\ndef solve(): pass\n```'), [['finish', { answer: 'def solve(): pass' }]]);
  t.same(call('```python\ndef solve(): pass\n```\nFINAL ANSWER'), [['finish', { answer: 'def solve(): pass' }]]);
  t.same(call('SEARCH: reverse a list'), [['search', { query: 'reverse a list' }]]);
  t.same(call('<tool_call>{"name": "finish", "arguments": {}}</tool_call>'), [['finish', {}]]);
  t.match(turn('<tool_call>{"name": "finish"'), { toolCalls: [], malformed: /no JSON/ });
  t.match(turn(' '), { malformed: /empty/ });
  t.match(turn('hello'), { toolCalls: [], finish: false });
  fc.assert(
    fc.property(fc.string(), (text) => {
      turn(text);
      turn(`\`\`\`${text}`);
    }),
    { seed: 5, numRuns: 300 },
  );
});

t.test('search: rare words first, and nothing for nothing', async (t) => {
  t.equal(searchNotes('how do I transpose a grid?')[0]!.title, 'columns of a grid, transpose');
  t.equal(searchNotes('reverse')[0]!.title, 'reverse');
  t.same(searchNotes('zzz qqq'), []);
  t.same(codeTools.names, ['execute_code', 'finish', 'search']);
});

t.test('the tokenizer of code-bytes gives every text back', async (t) => {
  const chat = new Chat(codeBytes.chat!);
  const d = codeBytes.demonstrate!(11, 1, { noise: 0, options: { level: 4 } });
  const { ids, mask } = episodeIds(chat, d.messages);
  t.ok(ids.length < 400, `${ids.length} tokens`);
  t.equal(chat.text(chat.turn(d.messages[2]!.content)), d.messages[2]!.content);
  t.ok(mask.some((m) => m === 1));
  fc.assert(
    fc.property(
      fc.string({ unit: 'binary' }),
      (text) => chat.tokenizer.decode(Array.from(chat.tokenizer.encode(text))) === text || text.includes('<|'),
    ),
    { seed: 3, numRuns: 60 },
  );
});

t.test('options: what is wrong is named', async (t) => {
  for (const [options, message] of [
    [{ level: 9 }, /level=9/],
    [{ lvel: 1 }, /did you mean "level"/],
    [{ sandbox: 'locl' }, /did you mean "local"/],
    [{ waive: ['memry'] }, /waive/],
  ] as const)
    t.throws(() => new CodeEnvironment(options), { message }, JSON.stringify(options));
});

t.test('every family: both solutions pass its tests, and another member fails one', { skip: reason }, async (t) => {
  const provider = makeSandboxProvider('local', { javascript: true, warm: 2 });
  t.teardown(() => provider.close());
  for (const family of FAMILIES) {
    for (const language of ['python', 'javascript'] as const) {
      let seed = 0;
      while (generateTask(seed, family.level, language).family !== family.name) seed++;
      const task = generateTask(seed, family.level, language);
      const right = await grade(provider, { code: task.solution, language, tests: task.tests, timeoutMs: 5000 });
      t.same(right, { passed: task.tests.length, total: task.tests.length, status: 'exit' }, `${family.name} in ${language}`);
    }
  }
});

t.test('no program earns a reward by printing, forging or hanging', { skip: reason }, async (t) => {
  const provider = makeSandboxProvider('local', { warm: 2 });
  t.teardown(() => provider.close());
  const task = generateTask(3, 1, 'python');
  const forge = (more: string) => `import sys\nf = sys._getframe()\nwhile f.f_back: f = f.f_back\n${more}`;
  const programs: Record<string, string> = {
    'prints what it was asked': `print(${JSON.stringify(JSON.stringify(task.tests))})`,
    'exits at once with success': 'import os\nos._exit(0)',
    'forges a line of answers': `${forge('')}\nimport json, gc\nmark = [o for o in gc.get_objects() if isinstance(o, dict) and "mark" in o]\nfor o in mark[:1]:\n    print(o["mark"] + json.dumps([[1, True]] * 8), flush=True)\nimport os\nos._exit(0)`,
    'answers with an object that is equal to everything': 'class A(int):\n    def __eq__(self, o): return True\ndef solve(*a): return A(0)',
    hangs: 'def solve(*a):\n    while True: pass',
    'does not define solve': 'x = 1',
    'is no program': 'def solve(:',
    'answers NaN': 'def solve(*a): return float("nan")',
    'exhausts memory': 'x = bytearray(1 << 40)',
    'answers the examples alone': `def solve(*a): return {${task.examples.map((e) => `${JSON.stringify(JSON.stringify(e.args))}: ${JSON.stringify(e.expected)}`).join(', ')}}.get(str(list(a)))`,
  };
  for (const [name, code] of Object.entries(programs)) {
    const graded = await grade(provider, { code, language: 'python', tests: task.tests, timeoutMs: 300 });
    t.ok(graded.passed < graded.total, `${name}: ${JSON.stringify(graded)}`);
  }
  const tampered = `import json\njson.dumps = lambda *a, **k: "[" + ",".join(["[1, 0]"] * 8) + "]"\n${task.solution}`;
  t.not((await grade(provider, { code: tampered, language: 'python', tests: task.tests, timeoutMs: 2000 })).passed, task.tests.length);
});

t.test('episodes', { skip: reason }, async (t) => {
  const seed = 12;
  const options = { level: 2, maxTurns: 4, timeoutMs: 300 };
  const task = generateTask(seed, 2, 'python');
  const e = new CodeEnvironment(options);
  t.teardown(() => e.close());
  const opening = await e.reset({ seed });
  t.match(opening.observation[1]!.content, task.text);
  t.notOk(
    opening.observation.some((m) =>
      task.tests.some((test) => m.content.includes(`solve(${test.args.map((a) => JSON.stringify(a)).join(', ')})`)),
    ),
    'no test is shown',
  );

  const solved = await play(e, fenced(`${task.solution}\nprint("ran")`), turn('FINAL ANSWER'));
  t.match(solved, { reward: 1, terminated: true, info: { rewardParts: { solved: 1, tests: 1, finished: 1 }, programs: 1 } });

  await e.reset({ seed });
  t.match(
    await play(e, turn(`FINAL ANSWER\n\`\`\`python\n${task.solution}\n\`\`\``)),
    { reward: 1, info: { programs: 0 } },
    'handed in without a run',
  );

  await e.reset({ seed });
  t.match(await play(e, fenced(task.mistaken.solution), turn('FINAL ANSWER')), { reward: 0, terminated: true });

  await e.reset({ seed });
  t.match(await play(e, turn('FINAL ANSWER')), { reward: 0, terminated: true }, 'nothing handed in');

  await e.reset({ seed });
  const cut = await e.step(fenced('print("x" * 2000 + "END")'));
  t.equal(cut.observation[0]!.content.length, 500);
  t.match(cut.observation[0]!.content, /xEND\n$/, 'the last 500 characters');
  t.match((await e.step(turn('SEARCH: sort numbers'))).observation[0]!.content, /sorted\(xs\)/);
  t.match((await e.step(turn('?'))).observation[0]!, { role: 'user', content: /Write a Python program/ });
  t.match(await e.step(fenced('print(1)')), { truncated: true, terminated: false, reward: 0 }, 'the last turn');

  await e.reset({ seed });
  t.match(
    await e.step(fenced('while True: pass')),
    { terminated: true, reward: 0, observation: [{ content: 'TIMEOUT' }], info: { ended: 'timeout' } },
    'a program that hangs is its author’s doing',
  );

  await e.reset({ seed });
  await e.step(fenced('open("kept.txt", "w").write("kept")\nx = 5'));
  t.match((await e.step(fenced('print(open("kept.txt").read())'))).observation[0]!.content, /^kept/, 'files stay for the episode');
  await e.reset({ seed });
  t.match((await e.step(fenced('print(open("kept.txt").read())'))).observation[0]!.content, /FileNotFoundError/, 'and not for the next');

  const s = new CodeEnvironment({ tasks: 'stdout', language: 'javascript' });
  t.teardown(() => s.close());
  for (const [i, book] of TEXTBOOK.entries()) {
    await s.reset({ seed: i });
    t.match(await play(s, fenced(book.solution.javascript, 'js'), turn('FINAL ANSWER')), { reward: 1 }, book.name);
  }
});

t.test('demonstrations say what a sandbox would have said', { skip: reason }, async (t) => {
  for (const language of ['python', 'javascript']) {
    for (let level = 1; level <= 4; level++) {
      for (let noise = 0; noise < 2; noise++) {
        const options = { level, language };
        const seed = 1000 * level + noise;
        const d = codeBytes.demonstrate!(seed, noise, { noise, options });
        const e = new CodeEnvironment(options);
        await e.reset({ seed });
        const ran = await e.step(turn(d.messages[2]!.content));
        t.equal(ran.observation[0]!.content, d.messages[3]!.content, `${language} ${level}: ${d.messages[2]!.content}`);
        t.equal((await e.step(turn('FINAL ANSWER'))).reward, d.reward);
      }
    }
  }
});

t.test('it conforms', { skip: reason }, async (t) => {
  t.same(await checkEnvironment(entry('code-bytes'), { seeds: [0, 7, TOP], options: { language: 'both' } }), []);
});

t.test('machinery that fails is an error that redoes the episode, never a reward; machinery that is missing refuses the run', async (t) => {
  const broken = (what: 'create' | 'exec'): SandboxProvider => {
    const lost = async () => {
      const { ActorsError } = await import('../../actors/index.ts');
      throw new ActorsError('SINKFLEX_SANDBOX_LOST', 'broken for the test');
    };
    const info = { id: 'x', provider: 'broken', isolation: 'none' as const, createdAt: 0, labels: {}, enforced: [] };
    const sandbox = { id: 'x', info, exec: lost as never, writeFile: lost, readFile: lost as never, close: async () => {} };
    return {
      name: 'broken',
      create: what === 'create' ? (lost as never) : async () => sandbox,
      list: () => [],
      destroy: async () => false,
      selfTest: async () => ({ provider: 'broken', ok: true, limits: [], missing: [] }),
      stats: () => ({ open: 0, warm: 0, created: 0, hits: 0, misses: 0, hitRate: 0, lost: 0 }),
      close: async () => {},
    };
  };
  registerSandboxProvider('broken-create', () => broken('create'));
  registerSandboxProvider('broken-exec', () => broken('exec'));
  for (const sandbox of ['broken-create', 'broken-exec']) {
    for (const action of [fenced('print(1)'), turn('FINAL ANSWER: def solve(a, b): return 1')]) {
      const e = new CodeEnvironment({ sandbox });
      await e.reset({ seed: 1 });
      const error = await e.step(action).then(
        () => undefined,
        (cause: unknown) => cause,
      );
      t.ok(isInfrastructureFailure(error), `${sandbox}: ${action.toolCalls[0]!.name}`);
      await e.close();
    }
  }
  await t.rejects(codeBytes.prepare!({ sandbox: 'broken-create' }), { code: 'SINKFLEX_SANDBOX_LOST' });
});

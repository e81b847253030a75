/** The desk: what its levels hold, that fixed policies do badly, that the checker checks, and that nothing a model says breaks it. */
import fc from 'fast-check';
import t from 'tap';
import { agent, MISTAKES, type Mistake, NO_SLIPS } from '../../actors/environment/desk/expert.ts';
import { demonstrate, deskSettings, FIXED_POLICIES, generateTask, LEVELS, type Played, play } from '../../actors/environment/desk/index.ts';
import { solve } from '../../actors/environment/desk/solution.ts';
import { deskWords, REQUESTS } from '../../actors/environment/desk/words.ts';
import { desk, type StepResult, trainingTask, validationTask } from '../../actors/environment/index.ts';
import { Chat, episodeIds } from '../../actors/language/index.ts';

const chat = new Chat(desk.chat);
const median = (values: number[]): number => values.sort((a, b) => a - b)[values.length >> 1]!;
const mean = (values: number[]): number => values.reduce((a, b) => a + b, 0) / values.length;
const parts = (r: StepResult) => r.info.rewardParts as Record<string, number>;

t.test('the default level is long enough, the expert solves all of it, doing nothing none', async (t) => {
  const turns: number[] = [];
  const changes: number[] = [];
  const tokens: number[] = [];
  for (let i = 0; i < 2000; i++) {
    const played = play(validationTask(i));
    if (played.reward !== 1) t.fail(`the expert does not solve validation task ${i}`);
    turns.push(played.turns);
    changes.push(played.counts.changes);
    tokens.push(episodeIds(chat, played.messages).ids.length);
  }
  t.ok(median(turns) >= 12, `median ${median(turns)} turns`);
  t.ok(median(changes) >= 5, `median ${median(changes)} turns that change the world`);
  t.ok(median(tokens) >= 130 && median(tokens) <= 190, `median ${median(tokens)} tokens`);
  const idle = mean(Array.from({ length: 2000 }, (_, i) => desk.baselines!['do nothing']!(validationTask(i))));
  t.equal(idle, 0);
});

t.test('the expert solves every level', async (t) => {
  for (const level of Object.values(LEVELS)) {
    const scores = Array.from({ length: 500 }, (_, i) => play(trainingTask(1, i), { options: { level: level.level } }).reward);
    t.equal(mean(scores), 1, `level ${level.level}`);
  }
});

t.test('no fixed policy gets far', async (t) => {
  t.equal(Object.keys(FIXED_POLICIES).length, 8);
  for (const [name, habits] of Object.entries(FIXED_POLICIES)) {
    const score = mean(Array.from({ length: 2000 }, (_, i) => play(validationTask(i), { habits }).reward));
    t.ok(score <= 0.3, `${name}: ${score}`);
    const first = mean(Array.from({ length: 400 }, (_, i) => play(validationTask(i), { habits }).reward));
    t.ok(first <= 0.3, `${name} on the validation set of the main job: ${first}`);
  }
});

t.test('the expert errs as told', async (t) => {
  const rate = (noise: number): number =>
    mean(Array.from({ length: 2000 }, (_, i) => demonstrate(trainingTask(2, i), 11, { noise }).reward));
  const rates = [0, 0.5, 1, 1.5].map(rate);
  t.equal(rates[0], 1);
  t.ok(rates[0]! > rates[1]! && rates[1]! > rates[2]! && rates[2]! > rates[3]!, `more noise, less success: ${rates.join(', ')}`);
  t.ok(Math.abs(rates[2]! - 0.29) < 0.03, `at noise 1 ${rates[2]}`);
  t.strictSame(demonstrate(7, 1), demonstrate(7, 1));
  t.notSame(demonstrate(7, 1, { noise: 2 }).messages, demonstrate(7, 3, { noise: 2 }).messages);

  // Each mistake shows, and none is fatal by itself everywhere or harmless by name.
  for (const mistake of Object.keys(MISTAKES) as Mistake[]) {
    let differs = 0;
    for (let i = 0; i < 40; i++) {
      const slips = { happens: (m: Mistake) => m === mistake, random: NO_SLIPS.random };
      if (JSON.stringify(play(i, { slips }).messages) !== JSON.stringify(play(i).messages)) differs++;
    }
    t.ok(differs > 0, `${mistake} shows in ${differs} of 40`);
  }
});

t.test('the checker tells each fault by its factor', async (t) => {
  const seed = Array.from({ length: 1000 }, (_, i) => i).find((i) => {
    const steps = solve(generateTask(i, deskSettings())).steps;
    return steps.some((s) => s.by === 'agent' && s.tool === 'refund') && steps.length >= 6;
  })!;
  const good = play(seed);
  const said = good.messages.filter((m) => m.role === 'assistant').map((m) => m.content);
  const act = (lines: string[]): StepResult => {
    const environment = desk.create();
    environment.reset({ seed });
    let last: StepResult | undefined;
    for (const line of lines) last = environment.step(desk.chat.parse(line)) as StepResult;
    return last!;
  };
  const all = { closed: 1, state: 1, told: 1, order: 1, identified: 1 };
  t.strictSame(parts(act(said)), all);
  const drop = (start: string) => said.filter((line) => !line.startsWith(start));
  const refund = said.find((line) => line.startsWith('call refund'))!;
  t.strictSame(parts(act([...said.slice(0, -1), 'done refund 9'])), { ...all, told: said.at(-1) === 'done refund 9' ? 1 : 0 });
  t.strictSame(parts(act(drop('call find_rider'))), { ...all, identified: 0 });
  t.strictSame(parts(act(drop('call refund'))), { ...all, state: 0 });
  t.strictSame(parts(act(drop('call flag'))), { ...all, state: 0, order: 0 });
  const flag = said.find((line) => line.startsWith('call flag'))!;
  t.strictSame(parts(act([...said.filter((l) => l !== flag && !l.startsWith('done')), flag, said.at(-1)!])), { ...all, order: 0 });
  t.strictSame(parts(act(['call transfer'])), { ...all, state: 0, told: 0, identified: 0 });
  const beforeRefund = said.slice(0, said.indexOf(refund));
  t.match(act([...beforeRefund, `${refund.slice(0, -1)}0`]).observation, [{ role: 'tool', content: 'error no call' }]);

  // Asking again for what is so already, or reading more, changes nothing.
  t.strictSame(parts(act([REQUESTS.code, 'call docks', ...said.slice(0, 3), 'call get_bike otter', ...said.slice(3)])), all);
});

t.test('budgets end an episode without score', async (t) => {
  const run = (line: string, n: number, options = {}): StepResult => {
    const environment = desk.create(options);
    environment.reset({ seed: 1 });
    let last: StepResult | undefined;
    for (let i = 0; i < n; i++) last = environment.step(desk.chat.parse(line)) as StepResult;
    return last!;
  };
  t.match(run('hello', 3), { truncated: true, reward: 0, info: { malformed: 3, rewardParts: { closed: 0 } } });
  t.match(run('call end_ride golf', 6), { truncated: true, info: { errors: 6 } });
  t.match(run('call docks', 24), { truncated: true, info: { turns: 24, toolCalls: 24 } });
  t.match(run('call docks', 5, { maxTurns: 5 }), { truncated: true });
  t.match(run('call docks', 23), { truncated: false });
});

t.test('nothing that a model says is thrown at it', async () => {
  const word = fc.constantFrom(...deskWords(), ...'0123456789', '', '<|end|>', '47');
  const sentence = fc.oneof(
    fc.array(word, { maxLength: 7 }).map((words) => words.join(' ')),
    fc.array(word, { maxLength: 5 }).map((words) => ['call', ...words].join(' ')),
    fc.constantFrom(...Object.values(REQUESTS)),
    fc.string(),
  );
  fc.assert(
    fc.property(fc.nat(), fc.array(sentence, { minLength: 1, maxLength: 30 }), (seed, lines) => {
      const environment = desk.create();
      environment.reset({ seed });
      for (const line of lines) {
        const r = environment.step(desk.chat.parse(line)) as StepResult;
        const over = r.terminated || r.truncated;
        if (!over && r.observation.length !== 1) throw new Error(`no answer to ${line}`);
        if (r.reward !== 0 && r.reward !== 1) throw new Error(`reward ${r.reward}`);
        if (over) break;
      }
    }),
    { numRuns: 800 },
  );
  // Arguments that no parser of ours makes.
  const environment = desk.create();
  environment.reset({ seed: 3 });
  for (const args of [{}, { ride: null, amount: {} }, { bike: ['1'], part: 'sadness' }, { code: 47 }]) {
    for (const name of ['refund', 'flag', 'find_rider', 'get_bike', 'toString']) {
      environment.step({ text: 'x', finish: false, toolCalls: [{ name, arguments: args }] });
      environment.reset({ seed: 3 });
    }
  }
});

t.test('tasks are as balanced and as solvable as they should be', async (t) => {
  const settings = deskSettings();
  const seen = new Map<string, number>();
  const count = (key: string) => seen.set(key, (seen.get(key) ?? 0) + 1);
  for (let i = 0; i < 4000; i++) {
    const task = generateTask(trainingTask(5, i), settings);
    const ids = new Set([...task.riders.map((r) => r.code), ...task.rides.map((r) => r.id), ...task.bikes.map((b) => b.id)]);
    if (ids.size !== 9) t.fail(`ids repeat in task ${i}`);
    count(task.riders[task.caller]!.standing);
    const free = task.docks.filter((n) => n > 0).length;
    if (task.docks[task.bikes[task.caller]!.dock - 1] === 0) {
      count('full');
      if (free !== 1) t.fail(`task ${i}: ${free} docks to walk to`);
    }
    if (!task.bluetooth) count('off');
  }
  for (const key of ['gold', 'plus', 'basic', 'guest', 'hold']) t.ok(Math.abs(seen.get(key)! / 4000 - 0.2) < 0.03, key);
  for (const key of ['full', 'off']) t.ok(Math.abs(seen.get(key)! / 4000 - 0.6) < 0.03, key);
});

t.test('options that the desk does not take are refused with a hint', async (t) => {
  t.throws(() => desk.create({ levl: 2 }), { code: 'SINKFLEX_ENVIRONMENT_OPTION', message: /did you mean "level"/ });
  t.throws(() => desk.create({ level: 5 }), { code: 'SINKFLEX_ENVIRONMENT_OPTION' });
  t.throws(() => desk.create({ riders: 2.5 }), { code: 'SINKFLEX_ENVIRONMENT_OPTION', message: /an integer from 1 to 8/ });
  t.throws(() => desk.create({ treatments: [1, 2] }), { code: 'SINKFLEX_ENVIRONMENT_OPTION' });
  t.throws(() => desk.create({ refund: 'yes' }), { code: 'SINKFLEX_ENVIRONMENT_OPTION' });
  const environment = desk.create({ level: 1 });
  t.throws(() => environment.reset({ seed: 1, options: { lights: true } }), { code: 'SINKFLEX_ENVIRONMENT_OPTION' });
  t.match(environment.reset({ seed: 1, options: { level: 4 } }), { observation: [{ content: /lights/ }, {}] });
});

t.test('the scripted agent sees messages only', async (t) => {
  const played: Played = play(4);
  const answers = played.messages.filter((m, i) => i >= 2 && m.role !== 'assistant').map((m) => m.content);
  const speaker = agent(played.messages[0]!.content, played.messages[1]!.content, NO_SLIPS);
  const said: string[] = [];
  for (let next = speaker.next(), i = 0; !next.done; next = speaker.next(answers[i++] ?? '')) said.push(next.value);
  t.strictSame(
    said,
    played.messages.filter((m) => m.role === 'assistant').map((m) => m.content),
  );
});

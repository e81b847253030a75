/** tau2-bench as environments: every reference earns 1, doing nothing what is known of it, and what any environment must keep. */
import t from 'tap';
import {
  type Action,
  checkEnvironment,
  entry,
  make,
  registerUserSimulator,
  type StepResult,
  tau2,
  validationTask,
} from '../../actors/environment/index.ts';
import { parseConfig, parseOverrides } from '../../actors/pipeline/config.ts';
import { openTaskSource } from '../../actors/pipeline/task-source.ts';
import { clipValidation } from '../../actors/pipeline/validation.ts';
import { absent, dataFolder, NO_FIXES } from './traces.ts';

const skip = absent === undefined ? {} : { skip: `the data of tau2-bench are not there: ${absent} (TAU2_TRACES, TAU2_DATA)` };
const data = dataFolder;
const call = (name: string, args: Record<string, unknown> = {}): Action => ({
  text: '',
  toolCalls: [{ name, arguments: args }],
  finish: false,
});
const say = (text: string, finish = false): Action => ({ text, toolCalls: [], finish });

t.test('the references of all tasks earn 1, doing nothing what is known', skip, async (t) => {
  const known = { retail: [114, 7], airline: [50, 23], telecom: [114, 0] } as const;
  for (const [name, [tasks, idle]] of Object.entries(known) as [keyof typeof known, readonly [number, number]][]) {
    const domain = tau2.tau2Data(data, name);
    const ids = domain.split('base');
    t.equal(ids.length, tasks);
    const failed = ids.filter((id) => tau2.referenceScore(domain, domain.task(id), NO_FIXES) !== 1);
    t.strictSame(failed, [], `${name}: all references earn 1`);
    t.equal(tau2.doNothingRate(domain, 'base', NO_FIXES), `${idle}/${tasks}`, name);
    const [train, test] = [new Set(domain.split('train')), domain.split('test')];
    t.notOk(
      test.some((id) => train.has(id)),
      'train and test are disjoint',
    );
    t.equal(train.size + test.length, tasks);
  }
  // With what is wrong put right, the references of tasks whose reference has the same fault in it still agree with themselves.
  const all = tau2.readFixes(true, 'test');
  const retail = tau2.tau2Data(data, 'retail');
  t.strictSame(
    retail.split('base').filter((id) => tau2.referenceScore(retail, retail.task(id), all) !== 1),
    [],
  );
});

t.test('they keep what environments must keep', skip, async (t) => {
  registerUserSimulator('told', () => {
    let turn = 0;
    return {
      kind: 'told',
      start() {},
      reply: () => ({ text: turn++ === 0 ? 'Hello, I need help.' : '###STOP###' }),
      close() {},
    };
  });
  for (const name of ['tau2-retail', 'tau2-airline', 'tau2-telecom', 'tau2-mock']) {
    for (const user of ['solo', 'told']) {
      t.strictSame(await checkEnvironment(entry(name), { seeds: [0, 7, 0x80000001], options: { data, user } }), [], `${name}, ${user}`);
    }
  }
});

t.test('validation runs each task of the split once, in order', skip, async (t) => {
  for (const [o, split] of [
    [{}, 'test'],
    [{ split: 'train' }, 'train'],
    [{ task: '7' }, undefined],
  ] as const) {
    const wanted = split === undefined ? ['7'] : tau2.tau2Data(data, 'retail').split(split);
    const seeds = entry('tau2-retail').validationSeeds!({ data, ...o });
    const environment = make('tau2-retail', { data, ...o });
    const got: unknown[] = [];
    for (const seed of seeds) got.push((await environment.reset({ seed })).info.task);
    t.strictSame(got, wanted);
  }
  const config = parseConfig([parseOverrides(['env.name=tau2-retail', `env.options.data=${data}`, 'data.val_size=400'])]);
  t.match(clipValidation(config, await openTaskSource(config)).data, { val_size: 40, val_interim_size: 40 });
});

t.test('an episode alone: the reference by hand', skip, async (t) => {
  const domain = tau2.tau2Data(data, 'retail');
  const task = domain.task('1');
  const environment = make('tau2-retail', { data, task: '1' });
  const opening = await environment.reset({ seed: 3 });
  t.match(opening.observation[0]!.content, /<policy>/);
  t.equal(opening.observation.length, 2);
  t.ok(opening.tools!.some((tool) => tool.function.name === 'find_user_id_by_email'));
  t.match(opening.info, { benchmark: 'tau2-retail', taskVersion: /^v1\.0\.0/, user: 'solo', rewardBasis: 'DB x COMMUNICATE (no judge)' });
  let last: StepResult | undefined;
  for (const action of task.evaluation_criteria!.actions!) {
    last = await environment.step(call(action.name, action.arguments));
    t.equal(last.observation[0]!.role, 'tool');
    t.equal(last.observation[0]!.name, action.name);
  }
  last = await environment.step(say('All done.', true));
  t.match(last, { reward: 1, terminated: true, truncated: false });
  t.match(last.info, { termination: 'agent_stop', doNothing: '7/114', rewardParts: { db: 1, communicate: 1 } });
  await environment.close();

  // A judge decides the statements, and the basis says so.
  const judged = make('tau2-retail', { data, task: '1', judge: (s: string[]) => s.map(() => false) });
  await judged.reset({ seed: 3 });
  for (const action of task.evaluation_criteria!.actions!) await judged.step(call(action.name, action.arguments));
  const end = await judged.step(say('All done.', true));
  t.match(end.info, { rewardBasis: 'DB x NL_ASSERTION' });
  t.equal(end.reward, (task.evaluation_criteria!.nl_assertions ?? []).length > 0 ? 0 : 1);
});

t.test('dual control: the agent alone has both sides of telecom', skip, async (t) => {
  const domain = tau2.tau2Data(data, 'telecom');
  for (const id of domain.split('small').slice(0, 6)) {
    const environment = make('tau2-telecom', { data, task: id });
    const { tools } = await environment.reset({ seed: 1 });
    t.equal(tools!.length, 13 + 30 + 1);
    for (const action of domain.task(id).evaluation_criteria!.actions!) await environment.step(call(action.name, action.arguments));
    const end = await environment.step(call('done'));
    t.match(end, { reward: 1, terminated: true }, id);
  }
});

t.test('what a policy does wrong is answered, and ends the episode only through the limits', skip, async (t) => {
  const environment = make('tau2-retail', { data, max_errors: 4 });
  await environment.reset({ seed: 1 });
  const malformed = await environment.step({ text: '{"name":', toolCalls: [], finish: false, malformed: 'a tool call is no JSON' });
  t.match(malformed.observation[0], { role: 'tool', content: 'The call could not be read: a tool call is no JSON.' });
  t.match((await environment.step(say('<think>hm</think>'))).observation[0]!.content, /the turn is empty/);
  t.equal((await environment.step(call('no_such_tool'))).observation[0]!.content, "Error: Tool 'no_such_tool' not found.");
  const end = await environment.step(call('get_user_details', { nobody: 1 }));
  t.match(end, { reward: 0, terminated: false, truncated: true });
  t.match(end.info, { termination: 'too_many_errors', errors: 4, malformed: 2 });
  const short = make('tau2-retail', { data, max_steps: 2 });
  await short.reset({ seed: validationTask(1) });
  t.match(await short.step(call('list_all_product_types')), { truncated: false });
  t.match((await short.step(call('list_all_product_types'))).info, { termination: 'max_steps' });
});

t.test('options that do not exist are refused', skip, async (t) => {
  t.ok(make('tau2-retail', { level: 3, maxTurns: 24 }), 'what every environment of a run is passed');
  t.throws(() => make('tau2-retail', { max_step: 3 }), { code: 'SINKFLEX_ENVIRONMENT_OPTION', message: /did you mean "max_steps"/ });
  t.throws(() => make('tau2-retail', { fixes: 'variant' }), { message: /did you mean "variants"/ });
  t.throws(() => make('tau2-retail', { user: 'tell' }), { code: 'SINKFLEX_ENVIRONMENT_OPTION' });
  await t.rejects(Promise.resolve(make('tau2-retail', { data, task: '999' }).reset({ seed: 1 })), { code: 'SINKFLEX_ENVIRONMENT_OPTION' });
  await t.rejects(Promise.resolve(make('tau2-retail', { data, split: 'tets' }).reset({ seed: 1 })), { message: /did you mean "test"/ });
  await t.rejects(Promise.resolve(make('tau2-retail', { data: '/nowhere' }).reset({ seed: 1 })), { code: 'SINKFLEX_TAU2_DATA' });
});

t.test('a user that fails is nobody’s score', skip, async (t) => {
  registerUserSimulator('broken', () => ({
    kind: 'broken',
    start() {},
    reply: () => Promise.reject(new Error('the endpoint is down')),
    close() {},
  }));
  await t.rejects(Promise.resolve(make('tau2-retail', { data, user: 'broken' }).reset({ seed: 1 })), /endpoint is down/);
});

t.test('pass^k', async (t) => {
  const results = [
    { successes: 4, attempts: 4 },
    { successes: 2, attempts: 4 },
    { successes: 0, attempts: 5 },
  ];
  t.equal(tau2.passHatK(results, 1), (1 + 0.5 + 0) / 3);
  t.ok(Math.abs(tau2.passHatK(results, 2) - (1 + 1 / 6 + 0) / 3) < 1e-12);
  t.equal(tau2.passHatK(results, 4), 1 / 3);
  t.throws(() => tau2.passHatK(results, 5), RangeError);
});

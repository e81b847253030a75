/** tau2-retail-generated: tasks over the benchmark's database in few words. The expert earns 1, the words suffice, customers are held out. */
import t from 'tap';
import {
  type Action,
  checkEnvironment,
  entry,
  isValidationTask,
  make,
  tau2,
  trainingTask,
  validationTask,
} from '../../actors/environment/index.ts';
import { Chat } from '../../actors/language/index.ts';
import { absent, dataFolder, NO_FIXES } from './traces.ts';

const skip = absent === undefined ? {} : { skip: `the data of tau2-bench are not there: ${absent} (TAU2_TRACES, TAU2_DATA)` };
const options = { data: dataFolder };
const NAME = 'tau2-retail-generated';
const say = (text: string): Action => ({ text, toolCalls: [], finish: false });

t.test('the expert solves every task, a weak one some; doing nothing few', skip, async (t) => {
  const { demonstrate, baselines } = entry(NAME);
  const seeds = Array.from({ length: 150 }, (_, i) => [trainingTask(3, i), validationTask(i)]).flat();
  const mean = (of: (seed: number) => number) => seeds.reduce((sum, seed) => sum + of(seed), 0) / seeds.length;
  t.strictSame(
    seeds.filter((seed) => baselines!.expert!(seed, options) !== 1),
    [],
  );
  const weak = mean((seed) => demonstrate!(seed, 9, { options }).reward);
  t.ok(weak > 0.15 && weak < 0.75, `the erring expert: ${weak}`);
  t.equal(
    mean((seed) => baselines!['do nothing']!(seed, options)),
    0,
    'done without doing',
  );
  const denies = mean((seed) => baselines!['deny all']!(seed, options));
  t.ok(denies < 0.35, `denying all: ${denies}`);
  t.strictSame(demonstrate!(seeds[5]!, 9, { options }), demonstrate!(seeds[5]!, 9, { options }));
});

t.test('every word has a token, and no customer is in both halves', skip, async (t) => {
  const chat = new Chat(entry(NAME).chat!);
  const data = tau2.tau2Data(options.data, 'retail');
  const { users, orders, products, held, seen } = tau2.shopOf(data);
  t.equal(held.filter((id) => seen.includes(id)).length, 0);
  t.ok(held.length > 80 && seen.length > 300, `${held.length} held out, ${seen.length} seen`);
  const known = new Set(tau2.generatedRetailWords());
  const slug = (text: string) => text.toLowerCase().replace(/\s+/g, '-');
  const wanted = [
    ...[...users.values()].flatMap((u) => [u.name.first_name, u.name.last_name]),
    ...[...products.values()].flatMap((p) => [p.name, ...[...p.variants.values()].flatMap((v) => [...v.options.values()])]),
  ].map(slug);
  t.strictSame(
    wanted.filter((word) => !known.has(word)),
    [],
    'the words of the database',
  );
  const [train, validation] = [new Set<string>(), new Set<string>()];
  let longest = 0;
  for (let i = 0; i < 400; i++) {
    for (const seed of [trainingTask(1, i), validationTask(i)]) {
      const task = tau2.generateTask(data, seed);
      (isValidationTask(seed) ? validation : train).add(task.user.user_id);
      t.ok(task.user.orders.includes(task.order.order_id) && orders.has(task.order.order_id));
    }
    const { messages } = entry(NAME).demonstrate!(trainingTask(1, i), 4, { options });
    for (const { content } of messages) {
      const ids = chat.tokenizer.encode(content);
      longest = Math.max(longest, ids.length);
      t.equal(ids.length, content.split(' ').length, content);
      t.equal(chat.tokenizer.decode(ids), content);
    }
  }
  t.strictSame(
    [...train].filter((user) => validation.has(user)),
    [],
  );
});

t.test('calls are the original’s, errors are answered, and the end is scored by its evaluator', skip, async (t) => {
  t.strictSame(await checkEnvironment(entry(NAME), { seeds: [0, 7, 0x80000001, tau2.officialSeed(0)], options }), []);
  const data = tau2.tau2Data(options.data, 'retail');
  const seed = Array.from({ length: 500 }, (_, i) => trainingTask(1, i)).find((seed) => {
    const task = tau2.generateTask(data, seed);
    return task.kind === 'cancel' && task.call !== undefined && task.user.orders.length === 1;
  })!;
  const environment = make(NAME, options);
  const { observation } = await environment.reset({ seed });
  const who = observation[1]!.content.split(' wants ')[0]!.replace(' zip', '');
  const answer = async (text: string) => (await environment.step(say(text))).observation[0]!.content;
  t.equal(await answer('call order o1'), 'error not known', 'nobody was shown that');
  t.equal(await answer(`call find ${who}`), 'known');
  t.match(await answer('call user'), /^orders o1 pays [a-z-]+ p1/);
  t.match(await answer('call order o1'), /^pending by p1 [a-z-]+ i1/);
  t.match(await answer('call order o1 nothing'), /^pending by p1 nothing$/);
  t.match(await answer('call product i1'), /^([a-z0-9.-]+ (v\d+|out) ?)+$|^nothing$/);
  t.equal(await answer('call return o1 i1 p1'), 'error', 'the original refuses');
  t.equal(await answer(`call cancel o1 ${observation[1]!.content.split(' ').at(-1)}`), 'ok');
  const end = await environment.step(say('done'));
  t.match(end, {
    reward: 1,
    terminated: true,
    info: { rewardParts: { closed: 1, db: 1, told: 1, identified: 1 }, rewardBasis: 'DB x TOLD' },
  });
  // The same without the write, with the other closing, and without an end.
  await environment.reset({ seed });
  t.match(await environment.step(say('done')), { reward: 0, info: { rewardParts: { db: 0 } } });
  await environment.reset({ seed });
  t.match(await environment.step(say('denied')), { reward: 0 });
  await environment.reset({ seed });
  for (let i = 0; i < 2; i++) t.match(await environment.step(say('hello')), { terminated: false });
  t.match(await environment.step(say('hello')), { reward: 0, truncated: true, info: { rewardParts: { closed: 0 } } });
});

t.test('the official test tasks are scored beside it, never trained on', skip, async (t) => {
  const data = tau2.tau2Data(options.data, 'retail');
  const [official] = entry(NAME).alsoScored!(options);
  t.equal(official!.seeds.length, 40);
  t.ok(official!.seeds.every(isValidationTask));
  const { baselines } = entry(NAME);
  const idle = official!.seeds.reduce((sum, seed) => sum + baselines!['do nothing']!(seed, options), 0);
  t.equal(`${idle}/40`, tau2.doNothingRate(data, 'test', NO_FIXES), 'doing nothing solves what it solves there');
  const environment = make(NAME, options);
  const { info } = await environment.reset({ seed: official!.seeds[3]! });
  t.match(info, { benchmark: 'tau2-retail, compact', task: data.split('test')[3], doNothing: '2/40' });
});

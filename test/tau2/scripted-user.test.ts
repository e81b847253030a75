/** Scripted users of tau2-retail: the reference gets through the dialogue, nothing else earns more than it should, and they keep to their goals. */
import t from 'tap';
import { type Action, entry, make, type StepResult, tau2, validationTask } from '../../actors/environment/index.ts';
import { absent, dataFolder, NO_FIXES } from './traces.ts';

const skip = absent === undefined ? {} : { skip: `the data of tau2-bench are not there: ${absent} (TAU2_TRACES, TAU2_DATA)` };
const data = dataFolder;
const STYLES = ['plain', 'terse', 'chatty'] as const;
const call = (name: string, args: Record<string, unknown>): Action => ({ text: '', toolCalls: [{ name, arguments: args }], finish: false });
const say = (text: string): Action => ({ text, toolCalls: [], finish: false });
const YES = /(^|\s)Yes\b/;

interface Played {
  last: StepResult;
  /** What the user said, turn by turn. */
  user: string[];
  info: Record<string, unknown>;
}

/** A conversation by hand: says something, or calls, until the end. */
async function talk(task: string, options: Record<string, unknown> = {}, seed = 5) {
  const environment = make('tau2-retail', { data, task, user: 'scripted', ...options });
  const opening = await environment.reset({ seed });
  const user = [opening.observation.at(-1)!.content];
  let last: StepResult | undefined;
  return {
    user,
    info: opening.info,
    get last() {
      return last!;
    },
    get over() {
      return last !== undefined && (last.terminated || last.truncated);
    },
    async does(action: Action): Promise<string> {
      last = await environment.step(action);
      const message = last.observation.at(-1);
      if (message?.role === 'user') user.push(message.content);
      return message?.content ?? '';
    },
  };
}

function proposal(name: string, args: Record<string, unknown>): string {
  const [ids, to] = [args.item_ids as string[] | undefined, args.new_item_ids as string[] | undefined];
  const pay = args.payment_method_id === undefined ? '' : ` with payment method ${args.payment_method_id}`;
  const address = [args.address1, args.address2, args.city, args.state, args.zip].filter(Boolean).join(', ');
  const what: Record<string, string> = {
    cancel_pending_order: `cancel order ${args.order_id} (${args.reason})`,
    return_delivered_order_items: `return items ${ids?.join(', ')} of order ${args.order_id}${pay}`,
    exchange_delivered_order_items: `exchange items ${ids?.join(', ')} of order ${args.order_id} for ${to?.join(', ')}${pay}`,
    modify_pending_order_items: `modify items ${ids?.join(', ')} of order ${args.order_id} to ${to?.join(', ')}${pay}`,
    modify_pending_order_address: `set the address of order ${args.order_id} to ${address}`,
    modify_user_address: `set the default address in your profile to ${address}`,
    modify_pending_order_payment: `change the payment of order ${args.order_id} to ${args.payment_method_id}`,
  };
  return `I would ${what[name]}. Do you confirm (yes/no)?`;
}

/** An agent that knows the reference: identifies, proposes each write until it hears yes, tells what has to be told, and says goodbye. */
async function referenceAgent(task: string, options: Record<string, unknown> = {}): Promise<Played> {
  const domain = tau2.tau2Data(data, 'retail');
  const criteria = domain.task(task).evaluation_criteria!;
  const writes = tau2.referenceOf(domain, domain.task(task), NO_FIXES).writes.map((w) => w.name);
  const t = await talk(task, options);
  await t.does(say('To verify your identity, may I have your email, or your full name and zip code?'));
  for (const { name, arguments: args } of criteria.actions ?? []) {
    if (t.over) break;
    if (writes.includes(name)) {
      for (let tries = 0; tries < 8 && !t.over && !YES.test(await t.does(say(proposal(name, args)))); tries++);
    }
    if (!t.over) await t.does(call(name, args));
  }
  const told = criteria.communicate_info ?? [];
  if (!t.over && told.length > 0) await t.does(say(`This is what you asked for: ${told.join('; ')}.`));
  const idle = writes.length === 0 && told.length === 0;
  while (!t.over) await t.does(say(idle ? 'I am sorry, that is not possible.' : 'That is done. Is there anything else?'));
  return { last: t.last, user: t.user, info: t.last.info };
}

const scripted = () => {
  const domain = tau2.tau2Data(data, 'retail');
  return domain.split('base').filter((id) => tau2.refusesTask('retail', id, {}) === undefined);
};

t.test('the reference earns 1 through the dialogue, in every style; the same inputs give the same bytes', skip, async (t) => {
  const flat = '2 3 4 14 15 16 23 26 48 49 50 51 52 53 55 61 64 65 73 75 78 80 85 86 87 96 97 103 104 105 108 109 110 111 112'.split(' ');
  const ids = scripted();
  t.strictSame(
    flat.filter((id) => !ids.includes(id)),
    [],
    'all tasks without a condition have a script',
  );
  for (const style of STYLES) {
    const failed: string[] = [];
    for (const id of ids) {
      const { last, user, info } = await referenceAgent(id, { user_options: { style } });
      const stops = info.termination === 'user_stop';
      if (last.reward !== 1 || !stops) failed.push(`${id}: ${last.reward} ${info.termination} ${JSON.stringify(user)}`);
      if (user.some((text) => YES.test(text) && text.includes('###'))) failed.push(`${id}: it stops in the turn that confirms`);
      if (user.at(-1)!.includes('OUT-OF-SCOPE')) failed.push(`${id}: it hung up: ${JSON.stringify(user)}`);
      if (style !== 'chatty') continue;
      const again = await referenceAgent(id, { user_options: { style } });
      t.strictSame(again, { last, user, info });
    }
    t.strictSame(failed, [], style);
  }
});

t.test('an agent that does nothing earns no more than doing nothing does', skip, async (t) => {
  for (const [i, text] of [
    'Okay.',
    'Do you confirm (yes/no)?',
    'I am sorry, that is not possible.',
    'It is done. Anything else?',
  ].entries()) {
    for (const style of i === 0 ? STYLES : STYLES.slice(0, 1)) {
      const solved: string[] = [];
      for (const id of scripted()) {
        const t = await talk(id, { user_options: { style } });
        while (!t.over) await t.does(say(text));
        if (t.last.reward === 1) solved.push(id);
        if (t.last.info.termination === 'user_error') throw new Error(`${id}: the user fell silent`);
      }
      t.ok(solved.length <= 7, `${style}, "${text}": ${solved.length} of 114`);
    }
  }
});

t.test('what contradicts the goal is refused', skip, async (t) => {
  const domain = tau2.tau2Data(data, 'retail');
  const session = new tau2.Session(domain.domain, { fixes: NO_FIXES });
  const products = new Map<string, string[]>();
  const names = JSON.parse(session.respond({ name: 'list_all_product_types', arguments: {} }).content) as Record<string, string>;
  for (const id of Object.values(names)) {
    const { variants } = JSON.parse(session.respond({ name: 'get_product_details', arguments: { product_id: id } }).content);
    const items = Object.keys(variants);
    for (const item of items) products.set(item, items);
  }
  let refused = 0;
  for (const id of scripted()) {
    const { writes } = tau2.referenceOf(domain, domain.task(id), NO_FIXES);
    const { name, arguments: args } = writes[0] ?? { name: '', arguments: {} as Record<string, unknown> };
    if (name === '') continue;
    const wrong: Record<string, unknown>[] = [];
    const to = args.new_item_ids as string[] | undefined;
    const others = (item: string) => products.get(item)!.filter((other) => other !== item && !(args.item_ids as string[]).includes(other));
    if (to) wrong.push({ ...args, new_item_ids: [others(to[0]!)[0], ...to.slice(1)] });
    if (args.order_id) wrong.push({ ...args, order_id: '#W0000001' });
    if (args.payment_method_id) wrong.push({ ...args, payment_method_id: 'credit_card_0000001' });
    if (args.address1) wrong.push({ ...args, address1: '1 Nowhere Street', zip: '00001' });
    if (!to && ((args.item_ids as string[] | undefined)?.length ?? 0) > 1)
      wrong.push({ ...args, item_ids: (args.item_ids as string[]).slice(1) });
    const t2 = await talk(id);
    await t2.does(say('May I have your email, or your full name and zip code?'));
    // What a script holds back until it is asked to confirm comes first.
    for (let tries = 0; tries < 8 && !YES.test(await t2.does(say(proposal(name, args)))); tries++);
    t.match(t2.user.at(-1), YES, `${id}: agrees to what it wants`);
    for (const mistaken of wrong) {
      const answer = await t2.does(say(proposal(name, mistaken)));
      t.match(answer, /^No\b/, `${id}: ${proposal(name, mistaken)} -> ${answer}`);
      refused++;
    }
    const otherTool = name === 'cancel_pending_order' ? 'return' : 'cancel';
    t.match(await t2.does(say(`I would ${otherTool} order ${args.order_id ?? '#W0000001'}. Do you confirm?`)), /^No\b/);
  }
  t.ok(refused > 200, `${refused} proposals refused`);

  // In words: another colour than the wanted one.
  const words = await talk('75');
  await words.does(call('find_user_id_by_email', { email: 'liam.moore6985@example.com' }));
  await words.does(call('get_product_details', { product_id: names['Wireless Earbuds'] }));
  t.match(await words.does(say('I exchange your Wireless Earbuds for white ones, 4 hours, not resistant. Shall I proceed?')), /^No\b/);
  t.match(await words.does(say('I exchange your Wireless Earbuds for black ones, 4 hours, not resistant. Shall I proceed?')), /^Yes\b/);
});

t.test('what it tells, when it is asked', skip, async (t) => {
  const forgets = await talk('67');
  t.match(await forgets.does(say('Could you provide your email address?')), /do not remember my email.*Noah Ito.*98178/);
  t.match(await forgets.does(say('I cannot find that. Could you give me your name and zip code again?')), /98186/);
  t.match(await forgets.does(say('Your name and zip code, please?')), /98187/);
  const order = await talk('45');
  await order.does(call('find_user_id_by_name_zip', { first_name: 'Daiki', last_name: 'Johnson', zip: '80273' }));
  t.equal(await order.does(say('What is the order id?')), '9502127');
  t.equal(await order.does(say('What is the order number, please?')), 'I forgot the W at the beginning');
  t.match(await order.does(say('Which payment method do you prefer?')), /gift card/);
  const reason = await talk('113');
  await reason.does(call('find_user_id_by_name_zip', { first_name: 'Yara', last_name: 'Muller', zip: '85041' }));
  t.match(await reason.does(say('What is the reason for the cancellation?')), /by mistake/);
  const moved = await talk('10');
  await moved.does(call('transfer_to_human_agents', { summary: 'wants the other payment methods' }));
  t.equal(await moved.does(say('You are being transferred.')), '###TRANSFER###');
  t.match(moved.last, { terminated: true, reward: 1 });
  t.match(moved.info, { user: /^scripted 1 \([0-9a-f]{8}\) plain$/ });
});

t.test('tasks and domains without a script are left out or refused', skip, async (t) => {
  const options = { data, user: 'scripted' };
  const seeds = entry('tau2-retail').validationSeeds!(options);
  t.equal(
    seeds.length,
    tau2
      .tau2Data(data, 'retail')
      .split('test')
      .filter((id) => scripted().includes(id)).length,
  );
  await t.rejects(Promise.resolve(make('tau2-airline', options).reset({ seed: validationTask(1) })), {
    code: 'SINKFLEX_ENVIRONMENT_OPTION',
    message: /plays no task of split test: scripts are there for tau2-retail alone/,
  });
  await t.rejects(Promise.resolve(make('tau2-retail', { ...options, user_options: { style: 'rude' } }).reset({ seed: 1 })), {
    code: 'SINKFLEX_ENVIRONMENT_OPTION',
    message: /user_options.style/,
  });
});

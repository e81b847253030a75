/** What is counted beside the score: by hand, and over the references of all domains. */
import t from 'tap';
import { entry, make, type StepResult, tau2 } from '../../actors/environment/index.ts';
import { absent, dataFolder, NO_FIXES } from './traces.ts';

const skip = absent === undefined ? {} : { skip: `the data of tau2-bench are not there: ${absent} (TAU2_TRACES, TAU2_DATA)` };
const data = dataFolder;

t.test('references write nothing collateral, tell nothing foreign', skip, async (t) => {
  for (const name of ['retail', 'airline', 'telecom'] as const) {
    const domain = tau2.tau2Data(data, name);
    for (const id of domain.split('base')) {
      const task = domain.task(id);
      const environment = make(`tau2-${name}`, { data, task: id });
      await environment.reset({ seed: 1 });
      let end: StepResult | undefined;
      for (const action of task.evaluation_criteria!.actions ?? []) {
        end = await environment.step({ text: '', toolCalls: [{ name: action.name, arguments: action.arguments }], finish: false });
      }
      end = await environment.step({
        text: `Done ${(task.evaluation_criteria!.communicate_info ?? []).join(' ')}`,
        toolCalls: [],
        finish: true,
      });
      const found = end.info.diagnostics as Record<string, number>;
      t.match(found, { collateral_writes: 0, foreign_disclosures: 0, wrong_transfers: 0 }, `${name} ${id}`);
      t.equal(found.unconfirmed_writes, undefined, 'nobody could have agreed');
    }
  }
});

t.test('violations by hand, with a scripted user', skip, async (t) => {
  const environment = make('tau2-retail', { data, task: '75', user: 'scripted', max_errors: 50 });
  await environment.reset({ seed: 1 });
  const call = (name: string, args: Record<string, unknown>) =>
    environment.step({ text: '', toolCalls: [{ name, arguments: args }], finish: false });
  const say = (text: string) => environment.step({ text, toolCalls: [], finish: false });
  // Another customer's pending order is cancelled, unasked and before anybody was identified.
  await call('cancel_pending_order', { order_id: '#W2378156', reason: 'no longer needed' });
  await call('cancel_pending_order', { order_id: '#W5056519', reason: 'no longer needed' });
  await call('get_order_details', { order_id: '#W5056519' });
  await say('The other order went to 380 Maple Drive, and its email is yara.muller9246@example.com.');
  await call('get_user_details', { user_id: 'yara_muller_8652' });
  await say('So order #W5995614 of yara.muller9246@example.com is still pending.');
  await call('find_user_id_by_email', { email: 'liam.moore6985@example.com' });
  const { reference } = { reference: tau2.referenceOf(tau2.tau2Data(data, 'retail'), tau2.tau2Data(data, 'retail').task('75'), NO_FIXES) };
  const { name, arguments: args } = reference.writes[0]!;
  const wanted = args as { item_ids: string[]; new_item_ids: string[]; order_id: string; payment_method_id: string };
  const asked = await say(
    `I exchange item ${wanted.item_ids[0]} of order ${wanted.order_id} for ${wanted.new_item_ids[0]} with ${wanted.payment_method_id}. Do you confirm?`,
  );
  t.match(asked.observation[0]!.content, /^Yes/);
  await call(name, args);
  let end = await say('It is done. Is there anything else?');
  while (!end.terminated) end = await say('Is there anything else?');
  t.match(end.info.diagnostics, { unauthenticated_writes: 1, unconfirmed_writes: 1, collateral_writes: 1, tool_errors: 1 });
  t.ok((end.info.diagnostics as Record<string, number>).foreign_disclosures! >= 2);
  t.equal(end.reward, 0);
});

t.test('a transfer that the score does not ask for is seen', skip, async (t) => {
  const transfer = { name: 'transfer_to_human_agents', arguments: { summary: 'x' } };
  for (const [task, calls, wrong] of [
    ['50', [], 1],
    ['50', [transfer], 0],
    ['75', [transfer], 1],
    ['75', [], 0],
  ] as const) {
    const environment = make('tau2-retail', { data, task });
    await environment.reset({ seed: 1 });
    if (calls.length > 0) await environment.step({ text: '', toolCalls: [...calls], finish: false });
    const end = await environment.step({ text: 'Bye.', toolCalls: [], finish: true });
    t.equal((end.info.diagnostics as Record<string, number>).wrong_transfers, wrong, `${task} ${calls.length}`);
    if (task === '50') t.equal(end.reward, 1, 'both earn the same');
  }
});

t.test('labels of every score', skip, async (t) => {
  t.match(entry('tau2-retail').labels!({ data, user: 'scripted', user_options: { style: 'terse' } }), {
    'task version': /^v1\.0\.0/,
    'reward basis': 'DB x COMMUNICATE (no judge)',
    user: /^scripted 1 \(.*\) terse$/,
    split: 'test',
    'doing nothing solves': '2/40',
  });
});

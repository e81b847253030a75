/** The protocol, against recordings of the original's gym, and where they are silent by hand. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import {
  callText,
  type DomainName,
  Protocol,
  parseActionText,
  Tau2Gym,
  type Tau2Message,
  tau2Call,
  tau2Data,
} from '../../actors/environment/tau2/index.ts';
import { absent, dataFolder, NO_FIXES, readTraces, tracesFolder } from './traces.ts';

interface Recording {
  domain: DomainName;
  task_id: string;
  note: string;
  max_steps: number;
  max_errors: number;
  solo_mode: boolean;
  all_messages_as_observation: boolean;
  user_script: (string | [string, Record<string, unknown>][])[];
  reset_obs: string;
  steps: { action: string; obs: string; reward: number; terminated: boolean; truncated: boolean }[];
  final: { termination_reason: string; n_messages: number; roles: string[]; step_count: number; num_errors: number } | null;
}

const file = join(tracesFolder, 'gym_protocol.jsonl');
const missing = absent ?? (existsSync(file) ? undefined : file);
const skip = missing && `the recordings of tau2-bench are not there: ${missing} (TAU2_TRACES, TAU2_DATA)`;

t.test('the gym answers as the original does', skip ? { skip } : {}, async (t) => {
  const recordings = readTraces<Recording>(file);
  t.ok(recordings.length > 0);
  for (const r of recordings) {
    const where = `${r.domain} ${r.task_id}: ${r.note}`;
    const script = [...r.user_script];
    const user = async () => {
      const next = script.shift() ?? 'I have nothing more to say.';
      return typeof next === 'string' ? { content: next } : { tool_calls: next.map(([name, args]) => tau2Call({ name, arguments: args })) };
    };
    const gym = new Tau2Gym({
      data: tau2Data(dataFolder, r.domain),
      taskId: r.task_id,
      maxSteps: r.max_steps,
      maxErrors: r.max_errors,
      allMessagesAsObservation: r.all_messages_as_observation,
      user: r.solo_mode ? undefined : user,
      judge: (assertions) => assertions.map(() => true),
    });
    const problems: unknown[] = [];
    const same = (what: string, ours: unknown, theirs: unknown) => {
      if (JSON.stringify(ours) !== JSON.stringify(theirs)) problems.push({ what, ours, theirs });
    };
    same('reset', await gym.reset(), r.reset_obs);
    for (const [i, step] of r.steps.entries()) {
      const { observation, reward, terminated, truncated } = await gym.step(step.action);
      same(
        `step ${i} ${step.action}`,
        { observation, reward, terminated, truncated },
        {
          observation: step.obs,
          reward: step.reward,
          terminated: step.terminated,
          truncated: step.truncated,
        },
      );
    }
    if (r.final) {
      const p = gym.protocol!;
      same(
        'end',
        [p.termination, p.trajectory.length, p.steps, p.errors],
        [r.final.termination_reason, r.final.n_messages, r.final.step_count, r.final.num_errors],
      );
      same(
        'roles',
        p.trajectory.map((m) => (m.tool_calls ? `${m.role}:call` : m.role)),
        r.final.roles,
      );
    }
    t.strictSame(problems, [], where);
  }
});

t.test('actions as text', async (t) => {
  const call = (text: string) => {
    const parsed = parseActionText(text);
    return parsed && 'call' in parsed ? parsed.call : undefined;
  };
  t.strictSame(call('{"name": "f", "arguments": {"x": 1}}'), { name: 'f', arguments: { x: 1n } });
  t.strictSame(call(`f(a='it''s', b=-1.5, c=[1, "x"], d={'k': None}, e=bare, g=True, h=(1,))`), {
    name: 'f',
    arguments: { a: 'its', b: -1.5, c: [1n, 'x'], d: new Map([['k', null]]), e: 'bare', g: true, h: [1n] },
  });
  t.strictSame(call('f("dropped", b=2)'), { name: 'f', arguments: { b: 2n } }, 'positional arguments are dropped');
  t.strictSame(call('f( )'), { name: 'f', arguments: {} });
  for (const text of [
    'Hello (there)!',
    'f(',
    'f(a=1+2)',
    'f(a=1, a=2)',
    'f(a=g(1))',
    '{"name": "f"}',
    '```json\n{"name": "f", "arguments": {}}\n```',
  ]) {
    t.equal(call(text), undefined, text);
  }
  t.equal(parseActionText('  '), undefined);
  t.equal(callText({ name: 'f', arguments: { b: "it's", a: [1n, 'x'], c: null } }), "f(a=[1, 'x'], b='it\\'s', c=None)");
});

t.test('what the recordings do not show', skip ? { skip } : {}, async (t) => {
  const { domain, task } = tau2Data(dataFolder, 'mock');
  const say =
    (...turns: Partial<Tau2Message>[]) =>
    async () =>
      turns.shift() ?? { content: 'nothing' };
  const start = async (o: Partial<ConstructorParameters<typeof Protocol>[0]>) => {
    const p = new Protocol({ domain, task: task('create_task_1'), fixes: NO_FIXES, ...o });
    await p.start();
    return p;
  };
  // A silent user is asked again, then it is the user's error.
  t.equal((await start({ user: say({ content: ' ' }, { content: 'Hello.' }) })).termination, undefined);
  t.equal((await start({ user: say({ content: '' }, { content: '' }) })).termination, 'user_error');
  // The tokens end it in the first message too, and only in text.
  for (const token of ['###STOP###', '###TRANSFER###', '###OUT-OF-SCOPE###']) {
    t.equal((await start({ user: say({ content: `Bye ${token}` }) })).termination, 'user_stop', token);
  }
  const calling = await start({
    user: say({ tool_calls: [{ name: 'dismiss_notification', arguments: { notification_id: '###STOP###' } }] }),
  });
  t.equal(calling.termination, undefined);
  t.equal(calling.errors, 1, "the user's errors count");
  // A stop on exactly the last step is overwritten, unless that is put right.
  const last = async (fixes: ReadonlySet<'stop'>) => {
    const p = await start({ user: say({ content: 'Hi.' }, { content: '###STOP###' }), maxSteps: 3, fixes });
    await p.act('Done.');
    return p.termination;
  };
  t.equal(await last(new Set()), 'max_steps');
  t.equal(await last(new Set(['stop'])), 'user_stop');
  // The agent does not see the user's calls, nor the user the agent's.
  const both = await start({ user: say({ tool_calls: [{ name: 'check_notifications', arguments: {} }] }, { content: 'I looked.' }) });
  t.strictSame(
    both.incoming.map((m) => m.content),
    ['I looked.'],
  );
  t.notOk(both.seen.some((m) => m.role === 'tool'));
});

// The agent loop with a scripted engine and a scripted environment: what ends an episode, what is recorded, what is redone.
import { getEventListeners } from 'node:events';
import t from 'tap';
import type { StepResult } from '../../actors/environment/index.ts';
import {
  type EpisodeContext,
  type GenerationEngine,
  playEpisode,
  playWithRetries,
  type RemoteEpisode,
  TokenBuffer,
} from '../../actors/rollout/index.ts';
import { pack } from '../../actors/trajectory/index.ts';
import type { GenerateRequest, GenerateResult } from '../../kernels/index.ts';
import { SinkflexError } from '../../kernels/index.ts';

const END = 9;
const task = { task: 3, sample: 1, group: 't3', seed: 5 };

/** Writes `turns[i]` in turn i, cut at maxNewTokens; remembers what it was asked. */
function scriptedEngine(turns: number[][]) {
  const requests: GenerateRequest[] = [];
  const open = new Set<number>();
  let next = 0;
  let onClose: (() => void) | undefined;
  const engine: GenerationEngine = {
    openSequence: async () => {
      open.add(next);
      return next++;
    },
    closeSequence: (s) => {
      open.delete(s);
      onClose?.();
    },
    generate: async (s, r): Promise<GenerateResult> => {
      requests.push(r);
      const said = turns[r.key[3]];
      if (!said) {
        await new Promise<void>((closed) => {
          onClose = closed;
        });
        return {
          tokens: new Int32Array(0),
          logprobs: new Float32Array(0),
          versions: new Int32Array(0),
          lineage: 0,
          cachedTokens: 0,
          stopReason: 'aborted',
        };
      }
      if (!open.has(s)) throw new Error('closed');
      const tokens = said.slice(0, r.maxNewTokens);
      return {
        tokens: Int32Array.from(tokens),
        logprobs: Float32Array.from(tokens, (id) => -id / 10),
        versions: Int32Array.from(tokens, () => 7 + r.key[3]),
        lineage: 0,
        cachedTokens: 0,
        stopReason: tokens.at(-1) === END ? 'stop' : 'length',
      };
    },
  };
  return { engine, requests, open };
}

const answer = (o: Partial<StepResult> = {}): StepResult => ({
  observation: [{ role: 'user', content: 'more' }],
  reward: 0,
  terminated: false,
  truncated: false,
  info: {},
  ...o,
});

function context(o: {
  turns: number[][];
  steps: (StepResult | Error)[];
  maxTokens?: number;
  maxTurns?: number;
  prompt?: number[];
  observation?: number[];
  signal?: AbortSignal;
}) {
  const scripted = scriptedEngine(o.turns);
  const seen = { actions: [] as string[], closed: 0, deltas: [] as boolean[] };
  let step = 0;
  const environment: RemoteEpisode = {
    reset: async () => ({ observation: [{ role: 'user', content: 'hello' }], info: {} }),
    step: async (action) => {
      seen.actions.push(action.text);
      const result = o.steps[step++]!;
      if (result instanceof Error) throw result;
      return result;
    },
    close: () => {
      seen.closed++;
    },
  };
  const c: EpisodeContext = {
    engine: scripted.engine,
    environment,
    dialogue: {
      prompt: () => Int32Array.from(o.prompt ?? [1, 2]),
      delta: (_, open) => {
        seen.deltas.push(open ?? false);
        return Int32Array.from([...(open ? [END] : []), ...(o.observation ?? [3])]);
      },
      parse: (ids) => ({
        text: [...Array.from(ids)].join(' '),
        toolCalls: [],
        finish: false,
        ...(ids.length === 1 ? { malformed: 'empty' } : {}),
      }),
      stopIds: [END],
    },
    limits: { maxTokens: o.maxTokens ?? 64, maxTokensPerTurn: 4, maxTurns: o.maxTurns ?? 8 },
    sampling: { seed: 11, temperature: 1 },
    signal: o.signal ?? new AbortController().signal,
  };
  return { c, seen, ...scripted };
}

t.test('an episode records ids, mask, log-probabilities and versions as the engine gave them', async (t) => {
  const { c, seen, requests, open } = context({
    turns: [[4, 5, END], [END], [6, END]],
    steps: [
      answer({ reward: 0.25 }),
      answer(),
      answer({ reward: 0.75, terminated: true, info: { rewardParts: { state: 1, note: 'text' } } }),
    ],
  });
  const e = await playEpisode(task, c);
  t.strictSame([...e.ids], [1, 2, 4, 5, END, 3, END, 3, 6, END]);
  t.strictSame([...e.mask], [0, 0, 1, 1, 1, 0, 1, 0, 1, 1]);
  t.strictSame([...e.versions], [-1, -1, 7, 7, 7, -1, 8, -1, 9, 9]);
  t.equal(e.logprobs[2], Math.fround(-0.4));
  t.match(e, { reward: 1, rewardParts: { state: 1 }, stopReason: 'stop', turns: 3, malformed: 1, redone: 0, ...task });
  t.strictSame(seen.actions, [`4 5 ${END}`, `${END}`, `6 ${END}`]);
  t.strictSame(
    requests.map((r) => r.key),
    [0, 1, 2].map((turn) => [11, 3, 1, turn]),
    'keys are run seed, task, sample, turn',
  );
  t.strictSame(
    requests.map((r) => [...r.tokens]),
    [[1, 2], [3], [3]],
    'only what is new is read',
  );
  t.equal(open.size, 0);
  t.equal(seen.closed, 1);
  pack([e]);
});

t.test('how an episode ends: turns, length, a cut turn, an overlong prompt, an empty observation', async (t) => {
  const long = [4, 5, 6, 7, 8];
  t.match(
    await playEpisode(
      task,
      context({
        turns: [
          [4, END],
          [4, END],
        ],
        steps: [answer(), answer()],
        maxTurns: 2,
      }).c,
    ),
    { stopReason: 'turns', turns: 2 },
  );
  t.match(await playEpisode(task, context({ turns: [[4, END]], steps: [answer({ truncated: true, reward: 0 })] }).c), {
    stopReason: 'turns',
  });
  // A turn cut at its own budget goes on: its end mark comes from the template, unproduced.
  const cut = context({ turns: [long, [END]], steps: [answer(), answer({ terminated: true })] });
  const e = await playEpisode(task, cut.c);
  t.strictSame(cut.seen.deltas, [true]);
  t.strictSame([...e.ids], [1, 2, 4, 5, 6, 7, END, 3, END]);
  t.strictSame([...e.mask], [0, 0, 1, 1, 1, 1, 0, 0, 1]);
  // The budget of the whole conversation, filled to the last token.
  const full = await playEpisode(task, context({ turns: [[4, END], long], steps: [answer()], maxTokens: 7 }).c);
  t.match(full, { stopReason: 'length', turns: 2, reward: 0 });
  t.equal(full.ids.length, 7);
  // A turn that ends with its end mark on the last token still acts.
  const exact = context({ turns: [[4, 5, END]], steps: [answer({ terminated: true, reward: 1 })], maxTokens: 5 });
  t.match(await playEpisode(task, exact.c), { stopReason: 'stop', reward: 1 });
  // No room for another token after an observation.
  t.match(await playEpisode(task, context({ turns: [[4, END]], steps: [answer()], maxTokens: 5 }).c), { stopReason: 'length', turns: 1 });
  const overlong = await playEpisode(task, context({ turns: [], steps: [], prompt: [1, 2, 3, 4], maxTokens: 4 }).c);
  t.match(overlong, { stopReason: 'length', turns: 0 });
  t.equal(overlong.ids.length, 4);
  pack([overlong]);
  const empty = context({ turns: [[END], [END]], steps: [answer({ observation: [] }), answer({ terminated: true })] });
  t.match(await playEpisode(task, empty.c), { stopReason: 'stop', turns: 2 });
});

t.test('aborting closes the sequence and ends the episode at once', async (t) => {
  const ending = new AbortController();
  const { c, open } = context({ turns: [[4, END]], steps: [answer()], signal: ending.signal });
  const played = playEpisode(task, c);
  setImmediate(() => ending.abort());
  t.match(await played, { stopReason: 'aborted', turns: 1 });
  t.equal(open.size, 0);
  t.match(await playEpisode(task, context({ turns: [], steps: [], signal: AbortSignal.abort() }).c), { stopReason: 'aborted', turns: 0 });
});

t.test('any number of episodes under one signal put one listener on it, and take it away', async (t) => {
  const ending = new AbortController();
  const listeners = () => getEventListeners(ending.signal, 'abort').length;
  const warnings: string[] = [];
  const warned = (w: Error) => warnings.push(w.name);
  process.on('warning', warned);
  const short = Array.from({ length: 30 }, () =>
    context({ turns: [[4, END]], steps: [answer({ terminated: true })], signal: ending.signal }),
  );
  const stuck = Array.from({ length: 30 }, () => context({ turns: [], steps: [], signal: ending.signal }));
  const played = stuck.map(({ c }) => playEpisode(task, c));
  await Promise.all(short.map(({ c }) => playEpisode(task, c)));
  t.equal(listeners(), 1, 'those that still run');
  ending.abort();
  for (const p of played) t.match(await p, { stopReason: 'aborted' });
  t.equal(listeners(), 0);

  const quiet = new AbortController().signal;
  await playEpisode(task, context({ turns: [[4, END]], steps: [answer({ terminated: true })], signal: quiet }).c);
  t.equal(getEventListeners(quiet, 'abort').length, 0, 'none where the last episode has ended');
  await new Promise((turn) => setImmediate(turn));
  process.off('warning', warned);
  t.same(warnings, []);
});

t.test('infrastructure failures redo the episode with the same keys; other failures are not hidden', async (t) => {
  const lost = new SinkflexError('SINKFLEX_ENVIRONMENT_LOST', 'gone');
  const never = new AbortController().signal;
  const attempts: number[] = [];
  const play = (failures: number) => (attempt: number) => {
    attempts.push(attempt);
    return playEpisode(
      task,
      context({ turns: [[4, END]], steps: [attempt < failures ? lost : answer({ terminated: true, reward: 1 })] }).c,
    );
  };
  t.match(await playWithRetries(task, never, 3, play(2)), { reward: 1, redone: 2, stopReason: 'stop' });
  t.strictSame(attempts, [0, 1, 2]);
  t.match(await playWithRetries(task, never, 1, play(9)), { stopReason: 'error', redone: 1 });
  t.match(await playWithRetries(task, AbortSignal.abort(), 5, () => Promise.reject(lost)), { stopReason: 'aborted' });
  await t.rejects(
    playWithRetries(task, never, 3, () => Promise.reject(new TypeError('a defect'))),
    { message: 'a defect' },
  );
});

t.test('the token buffer grows without loss', async (t) => {
  const b = new TokenBuffer(2);
  for (let i = 0; i < 50; i++) {
    b.observe(Int32Array.of(i));
    b.produce(Int32Array.of(100 + i, 200 + i), Float32Array.of(-i, -2 * i), Int32Array.of(i, i));
  }
  const { ids, mask, logprobs, versions } = b.take();
  t.equal(ids.length, 150);
  t.strictSame([...ids.slice(147)], [49, 149, 249]);
  t.strictSame([...mask.slice(147)], [0, 1, 1]);
  t.strictSame([...versions.slice(147)], [-1, 49, 49]);
  t.strictSame([...logprobs.slice(147)], [0, -49, -98]);
});

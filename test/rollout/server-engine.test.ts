// One contract for whatever generates: our engine, a vLLM server and a SGLang server (stand-ins that answer as those do).
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { type GenerationEngine, ServerEngine } from '../../actors/rollout/index.ts';
import { Engine, type GenerateRequest } from '../../kernels/index.ts';
import { newStore } from '../trainer/trainer-world.ts';
import { standIn } from './stand-in-server.ts';

const request = (tokens: number[], more: Partial<GenerateRequest> = {}): GenerateRequest => ({
  tokens: Int32Array.from(tokens),
  maxNewTokens: 8,
  stopTokens: [],
  temperature: 1,
  key: [1, 2, 3, 0],
  ...more,
});

for (const kind of ['sinkflex', 'vllm', 'sglang'] as const) {
  t.test(`the contract of a turn: ${kind}`, async (t) => {
    const store = newStore(t);
    const folder = t.testdir();
    store.saveFolder(join(folder, 'begin'));
    const server = kind === 'sinkflex' ? undefined : await standIn(kind, join(folder, 'begin'));
    const limits = { maxSequences: 4, maxSequenceTokens: 64 };
    const engine: GenerationEngine & { dispose(): Promise<void> } = server
      ? new ServerEngine(store, {
          kind: kind as 'vllm',
          url: server.url,
          model: 'policy',
          folder: join(folder, 'weights'),
          timeoutMs: 10_000,
          ...limits,
        })
      : new Engine({ store, threads: 1, ...limits });
    const scorer = new Engine({ store, threads: 1, maxSequences: 1, maxSequenceTokens: 64 });

    // Ids in and out, turn after turn, each with its log-probability under the weights as they are, and its version.
    const sequence = await engine.openSequence();
    const all: number[] = [];
    const logprobs: number[] = [];
    for (const [turn, said] of [
      [5, 6, 7],
      [9, 10],
    ].entries()) {
      const r = await engine.generate(sequence, request(said, { key: [1, 2, 3, turn] }));
      t.match(r, { stopReason: 'length', lineage: 0 });
      t.equal(r.tokens.length, 8);
      t.ok(r.versions.every((v) => v === 0));
      all.push(...said, ...r.tokens);
      logprobs.push(...said.map(() => Number.NaN), ...r.logprobs);
    }
    const whole = await scorer.forward({ ids: Int32Array.from(all), cuSeqlens: Int32Array.of(0, all.length) });
    for (const [i, l] of logprobs.entries())
      if (!Number.isNaN(l)) t.ok(Math.abs(l - whole.logprobs[i]!) < 1e-5, `${i}: ${l} ${whole.logprobs[i]}`);

    // The same key draws the same; a stop token ends the turn and is part of it.
    const other = await engine.openSequence();
    const again = await engine.generate(other, request([5, 6, 7]));
    t.strictSame([...again.tokens], all.slice(3, 11));
    const third = await engine.openSequence();
    const stopped = await engine.generate(third, request([5, 6, 7], { stopTokens: [all[5]!] }));
    t.equal(stopped.stopReason, 'stop');
    t.equal(stopped.tokens.at(-1), all[5]);

    // New weights are taken before the next turn, and versions say so.
    store.initialise(77, 1);
    const fresh = await engine.openSequence();
    const after = await engine.generate(fresh, request([5, 6, 7]));
    t.match(after, { lineage: 1 });
    const scored = await scorer.forward({
      ids: Int32Array.from([5, 6, 7, ...after.tokens]),
      cuSeqlens: Int32Array.of(0, 3 + after.tokens.length),
    });
    for (const [i, l] of after.logprobs.entries()) t.ok(Math.abs(l - scored.logprobs[3 + i]!) < 1e-5);

    // Places are bounded: the fifth waits for one to be closed; what does not fit is said.
    let opened = false;
    if (server) {
      const hasty = new ServerEngine(store, {
        kind: kind as 'vllm',
        url: server.url,
        model: 'policy',
        folder,
        timeoutMs: 20,
        ...limits,
        maxSequences: 1,
      });
      await hasty.openSequence();
      await t.rejects(hasty.openSequence(), { code: 'SINKFLEX_ROLLOUT_SERVER', message: /none of 1 sequences was closed within 20 ms/ });
      await hasty.dispose();
    }
    const fifth = engine.openSequence().then((s) => {
      opened = true;
      return s;
    });
    await new Promise((next) => setImmediate(next));
    t.notOk(opened);
    engine.closeSequence(third);
    const last = await fifth;
    t.match(await engine.generate(last, request(Array.from({ length: 64 }, () => 3))), { stopReason: 'context' });
    // Closing ends a turn under way, if it is not over by then.
    const under = engine.generate(other, request([8], { maxNewTokens: 40 }));
    engine.closeSequence(other);
    t.match(await under, { stopReason: server ? 'aborted' : /aborted|length/ });

    if (server) {
      t.strictSame(readdirSync(join(folder, 'weights')), [], 'no copy of weights is left');
      const generate = kind === 'vllm' ? '/v1/completions' : '/generate';
      const failing = async (path: string, status: number, body: unknown, message: RegExp) => {
        server.spoil(path, { status, body });
        await t.rejects(engine.generate(fresh, request([4])), { code: 'SINKFLEX_ROLLOUT_SERVER', message });
      };
      await failing(generate, 500, 'out of memory', /HTTP 500 out of memory/);
      const short =
        kind === 'vllm'
          ? { choices: [{ finish_reason: 'stop', token_ids: [1, 2], logprobs: { token_logprobs: [-1] } }] }
          : { meta_info: { finish_reason: { type: 'abort' }, output_token_logprobs: [] } };
      await failing(generate, 200, short, kind === 'vllm' ? /2 tokens came with 1 log-prob/ : /ended a turn before its end/);
      store.initialise(78, 2);
      await failing(kind === 'vllm' ? '/collective_rpc' : '/update_weights_from_disk', 404, { detail: 'Not Found' }, /HTTP 404/);
      t.match(await engine.generate(fresh, request([4])), { lineage: 2 }, 'and tried again with the next turn');
      await server.close();
    }
    await engine.dispose();
    await scorer.dispose();
  });
}

// Servers that answer as vLLM and as SGLang do, over our own engine: what they are asked is what a real one would be asked.
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Engine, readModelConfig, WeightStore } from '../../kernels/index.ts';

export interface StandIn {
  url: string;
  /** Paths that were asked for, in order. */
  asked: string[];
  /** Answers the next request of a path so instead. */
  spoil(path: string, answer: { status: number; body: unknown }): void;
  close(): Promise<void>;
}

/** What either kind is asked, all of it in one. */
interface Asked {
  model: string;
  prompt: number[];
  max_tokens: number;
  stop_token_ids: number[];
  temperature: number;
  seed: number;
  logprobs: number;
  return_token_ids: boolean;
  ignore_eos: boolean;
  method: string;
  kwargs: { weights_path: string };
  input_ids: number[];
  return_logprob: boolean;
  model_path: string;
  sampling_params: {
    max_new_tokens: number;
    stop_token_ids: number[];
    temperature: number;
    sampling_seed: number;
    no_stop_trim: boolean;
    ignore_eos: boolean;
  };
}

interface Turn {
  ids: number[];
  max: number;
  stop: number[];
  temperature: number;
  seed: number;
}

/** `weights`: the folder that it starts with. */
export async function standIn(kind: 'vllm' | 'sglang', weights: string): Promise<StandIn> {
  const store = WeightStore.create(readModelConfig(weights));
  store.loadFolder(weights);
  const engine = new Engine({ store, threads: 1, maxSequences: 64, maxSequenceTokens: 512 });
  const spoiled = new Map<string, { status: number; body: unknown }>();
  const asked: string[] = [];

  const draw = async ({ ids, max, stop, temperature, seed }: Turn) => {
    const sequence = await engine.openSequence();
    try {
      return await engine.generate(sequence, {
        tokens: Int32Array.from(ids),
        maxNewTokens: max,
        stopTokens: stop,
        temperature,
        key: [seed, 0, 0, 0],
      });
    } finally {
      engine.closeSequence(sequence);
    }
  };
  const answers: Record<string, (b: Asked) => Promise<unknown>> = {
    '/v1/completions': async (b) => {
      if (b.model !== 'policy' || b.return_token_ids !== true || b.logprobs !== 0 || !b.ignore_eos)
        throw new Error('not what vLLM is asked for');
      const r = await draw({ ids: b.prompt, max: b.max_tokens, stop: b.stop_token_ids, temperature: b.temperature, seed: b.seed });
      const choice = {
        index: 0,
        text: '',
        finish_reason: r.stopReason,
        token_ids: [...r.tokens],
        logprobs: { token_logprobs: [...r.logprobs] },
      };
      return { object: 'text_completion', choices: [choice] };
    },
    '/collective_rpc': async (b) => {
      if (b.method !== 'reload_weights') throw new Error(`no method ${b.method}`);
      store.loadFolder(b.kwargs.weights_path);
      return { results: [null] };
    },
    '/reset_prefix_cache': async () => '',
    '/generate': async (b) => {
      const p = b.sampling_params;
      if (b.return_logprob !== true || !p.no_stop_trim || !p.ignore_eos) throw new Error('not what SGLang is asked for');
      const r = await draw({
        ids: b.input_ids,
        max: p.max_new_tokens,
        stop: p.stop_token_ids,
        temperature: p.temperature,
        seed: p.sampling_seed,
      });
      const drawn = [...r.tokens].map((id, i) => [r.logprobs[i], id, null]);
      return { text: '', meta_info: { finish_reason: { type: r.stopReason }, output_token_logprobs: drawn } };
    },
    '/update_weights_from_disk': async (b) => {
      store.loadFolder(b.model_path);
      return { success: true, message: 'Succeeded to update model weights.' };
    },
  };
  const own = kind === 'vllm' ? ['/v1/completions', '/collective_rpc', '/reset_prefix_cache'] : ['/generate', '/update_weights_from_disk'];
  const server = createServer((request, response) => {
    const path = request.url!;
    asked.push(path);
    const reply = (status: number, body: unknown) => response.writeHead(status).end(typeof body === 'string' ? body : JSON.stringify(body));
    const bad = spoiled.get(path);
    spoiled.delete(path);
    if (bad) return reply(bad.status, bad.body);
    if (!own.includes(path)) return reply(404, { detail: 'Not Found' });
    json(request)
      .then((body) => answers[path]!(body))
      .then(
        (body) => reply(200, body),
        (e: Error) => reply(400, { error: e.message }),
      );
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    spoil: (path, answer) => spoiled.set(path, answer),
    close: async () => {
      server.closeAllConnections();
      server.close();
      await engine.dispose();
      store.close();
    },
  };
}

async function json(request: IncomingMessage): Promise<Asked> {
  let text = '';
  for await (const chunk of request.setEncoding('utf8')) text += chunk;
  return JSON.parse(text) as Asked;
}

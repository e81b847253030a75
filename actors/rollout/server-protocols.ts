/** What vLLM and SGLang are asked over HTTP: tokens in and out with raw log-probabilities, and weights from a folder. */
import { z } from 'zod';
import type { GenerateRequest } from '../../kernels/index.ts';

/** One POST. */
export interface ServerCall {
  path: string;
  body: Record<string, unknown>;
}

export interface ServerTurn {
  tokens: number[];
  logprobs: number[];
  ended: 'stop' | 'length' | 'aborted';
}

export interface ServerProtocol {
  generate(ids: readonly number[], r: GenerateRequest, seed: number): ServerCall;
  /** Throws where the answer has not what was asked for. */
  read(answer: unknown): ServerTurn;
  /** Makes the server compute with the weights of a folder, in this order. */
  update(folder: string): ServerCall[];
}

const sampling = (r: GenerateRequest, seed: number) => ({
  temperature: r.temperature,
  ...(r.topK ? { top_k: r.topK } : {}),
  ...(r.topP === undefined ? {} : { top_p: r.topP }),
  ...(r.minP ? { min_p: r.minP } : {}),
  stop_token_ids: r.stopTokens,
  // Only the ends of a turn of the chat format end one.
  ignore_eos: true,
  skip_special_tokens: false,
  seed,
});

const ended = (reason: string | null | undefined): ServerTurn['ended'] => (reason === 'stop' || reason === 'length' ? reason : 'aborted');

const Completion = z.object({
  choices: z
    .array(
      z.object({
        finish_reason: z.string().nullish(),
        token_ids: z.array(z.int()),
        logprobs: z.object({ token_logprobs: z.array(z.number()) }),
      }),
    )
    .length(1),
});

/** vllm serve, with VLLM_SERVER_DEV_MODE=1 for the calls that change weights. */
const vllm = (model: string): ServerProtocol => ({
  generate: (ids, r, seed) => ({
    path: '/v1/completions',
    body: { model, prompt: ids, max_tokens: r.maxNewTokens, n: 1, logprobs: 0, return_token_ids: true, ...sampling(r, seed) },
  }),
  read: (answer) => {
    const { token_ids, logprobs, finish_reason } = Completion.parse(answer).choices[0]!;
    return { tokens: token_ids, logprobs: logprobs.token_logprobs, ended: ended(finish_reason) };
  },
  update: (folder) => [
    { path: '/collective_rpc', body: { method: 'reload_weights', kwargs: { weights_path: folder } } },
    { path: '/reset_prefix_cache', body: {} },
  ],
});

const Generated = z.object({
  meta_info: z.object({
    finish_reason: z.object({ type: z.string() }).nullish(),
    output_token_logprobs: z.array(z.tuple([z.number(), z.int()]).rest(z.unknown())),
  }),
});

const sglang = (): ServerProtocol => ({
  generate: (ids, r, seed) => {
    const { seed: sampling_seed, ...rest } = sampling(r, seed);
    return {
      path: '/generate',
      body: {
        input_ids: ids,
        sampling_params: { max_new_tokens: r.maxNewTokens, no_stop_trim: true, sampling_seed, ...rest },
        return_logprob: true,
      },
    };
  },
  read: (answer) => {
    const { output_token_logprobs: drawn, finish_reason } = Generated.parse(answer).meta_info;
    return { tokens: drawn.map(([, id]) => id), logprobs: drawn.map(([logprob]) => logprob), ended: ended(finish_reason?.type) };
  },
  update: (folder) => [{ path: '/update_weights_from_disk', body: { model_path: folder, flush_cache: true } }],
});

export const serverKinds = ['vllm', 'sglang'] as const;
export type ServerKind = (typeof serverKinds)[number];

/** `model`: the name that the server goes by. */
export const serverProtocol = (kind: ServerKind, model: string): ServerProtocol => (kind === 'vllm' ? vllm(model) : sglang());

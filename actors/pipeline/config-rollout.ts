// Settings of rollouts: sampling, the engine or server that generates, and its cache.
import { z } from 'zod';
import { count, devices, key, positive, section } from './config-key.ts';

export const rolloutSettings = section({
  n: key(count(), 8, 'samples', 'samples of a prompt (group size)'),
  adaptive_n: section({
    enable: key(z.boolean(), false, '', 'as many samples as the pass rate of a task asks for, at most rollout.n'),
    min: key(count(), 4, 'samples', 'least samples of a prompt'),
    target: key(z.number().gt(0).lt(1), 0.9, '', 'probability that a group has two different outcomes'),
  }),
  temperature: key(positive(), 1, '', 'sampling temperature'),
  top_p: key(z.number().gt(0).max(1), 1, '', 'nucleus mass; 1 keeps all tokens'),
  top_k: key(z.int().min(-1), -1, 'tokens', 'tokens kept; -1 keeps all'),
  num_actors: key(count().nullable(), null, 'actors', 'rollout actors; null fits the machine'),
  threads: key(count().nullable(), null, 'threads', 'engine threads of one rollout actor; null fits the machine'),
  device: devices('what rollout actors compute on'),
  name: key(
    z.enum(['sinkflex', 'vllm', 'sglang']),
    'sinkflex',
    '',
    'what generates: our engine, or a vLLM or SGLang server (docs/rollout-servers.md)',
  ),
  server: section({
    url: key(z.url({ protocol: /^https?$/ }).nullable(), null, 'URL', 'where that server is, such as http://127.0.0.1:8000'),
    model: key(z.string().min(1), 'policy', '', 'the name that a vLLM server goes by (--served-model-name)'),
    weights: key(
      z.string().min(1).nullable(),
      null,
      'path',
      'folder that the server sees too, where new weights are put for it; null is a temporary folder of this machine',
    ),
    timeout_s: key(positive(), 300, 's', 'deadline of one request'),
  }),
  max_num_seqs: key(count().max(65536), 128, 'sequences', 'episodes one rollout actor runs at once'),
  max_model_len: key(
    z.int().min(16),
    512,
    'tokens',
    'longest whole conversation; an episode that reaches it ends as length, unless rollout.context_compaction',
  ),
  context_compaction: section({
    enable: key(
      z.boolean(),
      false,
      '',
      'a conversation that outgrows max_model_len goes on in a new sequence with less of what tools answered; its sequences share one reward and one advantage',
    ),
    keep_turns: key(count(), 2, 'turns', 'latest turns whose answers of tools stay whole'),
    placeholder: key(z.string(), '', '', 'what stands for an older answer of a tool'),
  }),
  min_p: key(z.number().min(0).max(1), 0, '', 'least part of the largest probability; 0 keeps all tokens'),
  enable_prefix_caching: key(z.boolean(), true, '', 'prompts that begin alike are read once'),
  max_num_batched_tokens: key(
    count().nullable(),
    null,
    'tokens',
    'token rows of one generation step, decoding and prompts together; null is max_num_seqs + 256',
  ),
  kv_cache_tokens: key(
    count().nullable(),
    null,
    'tokens',
    'bound of the key/value cache of one rollout actor, at least max_model_len; null is max_num_seqs times max_model_len',
  ),
  kv_cache_on_update: key(
    z.enum(['kept', 'dropped', 'recomputed']),
    'kept',
    '',
    'what becomes of the cache when new weights are taken: kept, dropped after the turn under way, or recomputed at once',
  ),
  max_tokens_per_turn: key(count(), 24, 'tokens', 'longest single reply of the policy'),
});

// Layers of settings (preset, files, key=value) become one checked TrainingConfig, or one error that lists every problem.
import { parseDocument } from 'yaml';
import { environmentNames } from '../environment/index.ts';
import { didYouMean } from '../errors.ts';
import { advantageEstimatorNames, policyLossNames } from '../trainer/index.ts';
import { settings } from './config-describe.ts';
import { ConfigError } from './config-error.ts';
import type { ConfigLayer } from './config-file.ts';
import { MAX_STEP_SAMPLES, TrainingConfig } from './config-schema.ts';
import { importModule } from './module.ts';

/** Keys of verl and of our own history that mean one of ours. */
const ALIASES: ReadonlyMap<string, string> = new Map([
  ['rollout.val_kwargs.n', 'val.n'],
  ['rollout.val_kwargs.temperature', 'val.temperature'],
  ['rollout.multi_turn.max_assistant_turns', 'env.max_turns'],
  ['data.val_max_samples', 'data.val_size'],
  ['trainer.default_local_dir', 'output'],
  ['actor.ppo_max_token_len', 'actor.ppo_micro_batch_size_tokens'],
  ['actor.ppo_max_token_len_per_gpu', 'actor.ppo_micro_batch_size_tokens'],
  ['actor.ppo_micro_batch_size_per_gpu', 'actor.ppo_micro_batch_size'],
]);
/** Groups whose content is free (passed on as it is). */
const OPEN = ['env.options', 'data.apply_chat_template_kwargs'];

/** Later layers win, key by key. Throws a ConfigError that lists all problems of all layers. */
export function parseConfig(layers: readonly ConfigLayer[]): TrainingConfig {
  const known = new Map(settings().map((s) => [s.key, s]));
  const sections = new Set([...known.keys()].flatMap((k) => prefixes(k)));
  const merged = new Map<string, { value: unknown; source: string; layer: number }>();
  const problems: string[] = [];
  for (const [layer, { source: name, values, lineOf }] of layers.entries()) {
    for (const [raw, value] of flatten(values)) {
      const key = canonical(raw);
      const line = lineOf?.(raw);
      const source = line === undefined ? name : `${name}:${line}`;
      if (known.has(key) || OPEN.some((o) => key.startsWith(`${o}.`))) merged.set(key, { value, source, layer });
      else if (sections.has(key))
        problems.push(`${raw} = ${show(value)} (${source}): is a group of settings, such as ${key}.${child(key, known.keys())}`);
      else problems.push(`${raw} (${source}): unknown setting${suggestion(key, [...known.keys(), ...sections])}`);
    }
  }
  const parsed = TrainingConfig.safeParse(nest(merged));
  if (!parsed.success) {
    for (const issue of parsed.error.issues) {
      const key = settingOf(issue.path, known);
      const given = merged.get(key);
      const allowed = known.get(key)?.allowed ?? 'another value';
      const why = issue.code === 'custom' ? issue.message : `allowed: ${allowed}`;
      problems.push(`${key} = ${show(given?.value)}${given ? ` (${given.source})` : ''}: ${why}`);
    }
    throw new ConfigError([...new Set(problems)]);
  }
  const { data } = parsed.data;
  // A smaller val_size over an earlier layer's val_interim_size lowers it; both from one place, or the latter later, contradict.
  const interim = merged.get('data.val_interim_size')?.layer ?? -1;
  if (interim < (merged.get('data.val_size')?.layer ?? -1)) data.val_interim_size = Math.min(data.val_interim_size, data.val_size);
  problems.push(...contradictions(parsed.data));
  if (problems.length > 0) throw new ConfigError(problems);
  return parsed.data;
}

/**
 * As parseConfig, after importing the module that `env.module` names: what it registers may then be named by other settings. The module
 * stands in the configuration with its whole path.
 */
export async function loadConfig(layers: readonly ConfigLayer[]): Promise<TrainingConfig> {
  let named: { value: unknown; layer: ConfigLayer } | undefined;
  for (const layer of layers)
    for (const [key, value] of flatten(layer.values)) if (canonical(key) === 'env.module') named = { value, layer };
  if (typeof named?.value !== 'string' || named.value === '') return parseConfig(layers);
  const path = await importModule(named.value, named.layer.folder);
  return parseConfig([...layers, { source: named.layer.source, values: { 'env.module': path } }]);
}

/** `key=value` words of a command line as a layer; values are YAML scalars or flow collections, so `1e-4`, `null`, `true`, `[0.9, 0.95]` mean what they say. */
export function parseOverrides(words: readonly string[], source = 'command line'): ConfigLayer {
  const values: Record<string, unknown> = {};
  const problems: string[] = [];
  for (const word of words) {
    const at = word.indexOf('=');
    if (at <= 0) {
      problems.push(`${word} (${source}): expected key=value, such as rollout.n=4`);
      continue;
    }
    const document = parseDocument(word.slice(at + 1));
    values[word.slice(0, at)] = document.errors.length > 0 ? word.slice(at + 1) : document.toJS();
  }
  if (problems.length > 0) throw new ConfigError(problems);
  return { source, values };
}

function canonical(key: string): string {
  const short = key.replace(/^actor_rollout_ref\./, '').replace(/^ref\./, 'reference.');
  return ALIASES.get(short) ?? short;
}

function* flatten(value: Record<string, unknown>, prefix = ''): Generator<[string, unknown]> {
  for (const [name, inner] of Object.entries(value)) {
    const key = prefix + name;
    if (inner !== null && typeof inner === 'object' && !Array.isArray(inner) && !(inner instanceof Date)) {
      if (Object.keys(inner).length > 0) yield* flatten(inner as Record<string, unknown>, `${key}.`);
    } else if (inner !== undefined) yield [key, inner];
  }
}

function nest(flat: ReadonlyMap<string, { value: unknown }>): Record<string, unknown> {
  const root: Record<string, unknown> = {};
  for (const [key, { value }] of flat) {
    const path = key.split('.');
    let at = root;
    for (const name of path.slice(0, -1)) {
      at[name] ??= {};
      at = at[name] as Record<string, unknown>;
    }
    at[path.at(-1)!] = value;
  }
  return root;
}

function prefixes(key: string): string[] {
  const path = key.split('.');
  return path.slice(0, -1).map((_, i) => path.slice(0, i + 1).join('.'));
}

function settingOf(path: readonly PropertyKey[], known: ReadonlyMap<string, unknown>): string {
  for (let length = path.length; length > 0; length--) {
    const key = path.slice(0, length).join('.');
    if (known.has(key)) return key;
  }
  return path.join('.');
}

const child = (group: string, keys: Iterable<string>): string =>
  [...keys].find((k) => k.startsWith(`${group}.`))?.slice(group.length + 1) ?? '...';
/** As it would be written, which JSON cannot for all numbers. */
function show(value: unknown): string {
  if (value === undefined) return 'nothing';
  if (Array.isArray(value)) return `[${value.map(show).join(',')}]`;
  if (typeof value === 'number' && !Number.isFinite(value)) return Number.isNaN(value) ? '.nan' : value > 0 ? '.inf' : '-.inf';
  return JSON.stringify(value);
}

/** First a slip in the whole key, then the right last name in the wrong group. */
function suggestion(key: string, known: readonly string[]): string {
  const last = key.split('.').at(-1)!;
  const near = didYouMean(key, known) ?? known.find((k) => k.split('.').at(-1) === last);
  if (near) return `; did you mean ${near}?`;
  const tail = didYouMean(
    last,
    known.map((k) => k.split('.').at(-1)!),
  );
  const full = tail && known.find((k) => k.split('.').at(-1) === tail);
  return full ? `; did you mean ${full}?` : '';
}

/** Settings that are fine alone and wrong together. */
function contradictions(c: TrainingConfig): string[] {
  const wrong: string[] = [];
  const { model, rollout, data, actor, algorithm, env } = c;
  const { module } = env;
  const registered = (key: string, value: string, what: string, names: readonly string[], call: string) => {
    if (names.includes(value)) return;
    const near = didYouMean(value, names);
    const hint = near ? `did you mean ${near}?` : `there are ${names.join(', ')}`;
    // A module that imports another copy of the package fills the registry of that one.
    const why = module
      ? `env.module = ${module} registers none of that name (it has to call ${call} of this copy of the package)`
      : `one of your own needs env.module`;
    wrong.push(`${key} = ${show(value)}: no such ${what}; ${hint}${near && !module ? '' : `; ${why}`}`);
  };
  registered('env.name', env.name, 'environment', environmentNames(), 'register');
  if (actor.optim.state_in_slots && actor.device.some((name) => name !== 'cpu'))
    wrong.push(
      `actor.optim.state_in_slots: a trainer on a GPU (actor.device = ${actor.device}) keeps its moments there: set one of the two back`,
    );
  if (actor.optim.state_in_slots && actor.num_actors > 1)
    wrong.push(`actor.optim.state_in_slots: ${actor.num_actors} trainers divide the moments (actor.num_actors): set one of the two back`);
  if (model.dtype === 'mxfp4' && model.lora_rank === 0)
    wrong.push('model.dtype = mxfp4: experts in MXFP4 are frozen: learn adapters over them (model.lora_rank), or take bfloat16');
  if (model.lora_rank > 0 && model.path === null)
    wrong.push(`model.lora_rank = ${model.lora_rank}: adapters need a model below them: set model.path, or lora_rank to 0`);
  registered(
    'algorithm.adv_estimator',
    algorithm.adv_estimator,
    'advantage estimator',
    advantageEstimatorNames(),
    'registerAdvantageEstimator',
  );
  const { loss_mode } = actor.policy_loss;
  registered('actor.policy_loss.loss_mode', loss_mode, 'policy loss', policyLossNames(), 'registerPolicyLoss');
  if (model.num_attention_heads % model.num_key_value_heads !== 0) {
    wrong.push(
      `model.num_key_value_heads = ${model.num_key_value_heads}: must divide model.num_attention_heads = ${model.num_attention_heads}`,
    );
  }
  if (model.head_dim % 2 !== 0) wrong.push(`model.head_dim = ${model.head_dim}: must be even (rotary pairs)`);
  if (model.num_experts_per_tok > model.num_local_experts) {
    wrong.push(`model.num_experts_per_tok = ${model.num_experts_per_tok}: at most model.num_local_experts = ${model.num_local_experts}`);
  }
  if (actor.ppo_mini_batch_size !== null && data.train_batch_size % actor.ppo_mini_batch_size !== 0) {
    wrong.push(
      `actor.ppo_mini_batch_size = ${actor.ppo_mini_batch_size} prompts: must divide data.train_batch_size = ${data.train_batch_size} prompts`,
    );
  }
  if (data.val_interim_size > data.val_size) {
    wrong.push(
      `data.val_interim_size = ${data.val_interim_size}: at most data.val_size = ${data.val_size}, of which it is the first tasks`,
    );
  }
  if (data.train_batch_size * rollout.n > MAX_STEP_SAMPLES) {
    wrong.push(
      `data.train_batch_size = ${data.train_batch_size} prompts: times rollout.n = ${rollout.n} samples at most ${MAX_STEP_SAMPLES} episodes a step`,
    );
  }
  if (rollout.n < 2 && ['grpo', 'rloo', 'reinforce_plus_plus_baseline'].includes(algorithm.adv_estimator)) {
    wrong.push(`rollout.n = ${rollout.n}: ${algorithm.adv_estimator} compares samples of one prompt, so at least 2`);
  }
  if (rollout.name !== 'sinkflex') {
    if (rollout.server.url === null) wrong.push(`rollout.name = ${rollout.name}: needs rollout.server.url`);
    if (rollout.temperature !== 1)
      wrong.push(
        `rollout.temperature = ${rollout.temperature}: 1 with rollout.name=${rollout.name}, whose log-probabilities are taken without a temperature`,
      );
    if (actor.router_replay.mode !== 'disabled')
      wrong.push(`actor.router_replay.mode = ${actor.router_replay.mode}: disabled with rollout.name=${rollout.name}`);
  }
  const { debug } = c;
  if (debug.rollout_only && debug.train_only !== null) wrong.push('debug.rollout_only = true: not together with debug.train_only');
  if ((debug.rollout_only || debug.train_only !== null) && c.resume !== null)
    wrong.push(`resume = ${show(c.resume)}: runs with debug.rollout_only or debug.train_only are not resumed`);
  if (debug.train_only !== null && actor.router_replay.mode !== 'disabled')
    wrong.push(
      `actor.router_replay.mode = ${actor.router_replay.mode}: disabled with debug.train_only, since the experts of a rollout are not stored`,
    );
  const { sampler } = data;
  if (sampler.class_name === 'curriculum' && data.train_files === null && sampler.levels.length < 2) {
    wrong.push(`data.sampler.class_name = curriculum: needs data.sampler.levels=[1,2,3], or data.train_files whose rows have a level`);
  }
  if (data.train_files !== null && sampler.levels.length > 0) {
    wrong.push(`data.sampler.levels = ${show(sampler.levels)}: is for generated tasks; rows of data.train_files have a level of their own`);
  }
  if (sampler.band[0] >= sampler.band[1]) wrong.push(`data.sampler.band = ${show(sampler.band)}: the first must be below the second`);
  if (rollout.adaptive_n.enable && rollout.adaptive_n.min > rollout.n) {
    wrong.push(`rollout.adaptive_n.min = ${rollout.adaptive_n.min}: at most rollout.n = ${rollout.n}`);
  }
  const correction = algorithm.rollout_correction;
  if (correction.bypass_mode && correction.rollout_is !== null) {
    wrong.push(
      `algorithm.rollout_correction.rollout_is = ${correction.rollout_is}: must be null with bypass_mode, whose ratio corrects already`,
    );
  }
  if (correction.bypass_mode && correction.rollout_rs !== null) {
    wrong.push(
      `algorithm.rollout_correction.rollout_rs = ${correction.rollout_rs}: must be null with bypass_mode, which recomputes nothing to compare with`,
    );
  }
  if (correction.rollout_rs?.endsWith('k1') && correction.rollout_rs_threshold <= 1) {
    wrong.push(
      `algorithm.rollout_correction.rollout_rs_threshold = ${correction.rollout_rs_threshold}: above 1 with ${correction.rollout_rs}, whose ratio must lie within [1/C, C]`,
    );
  }
  const overlong = c.reward.overlong_buffer;
  if (overlong.enable && rollout.context_compaction.enable)
    wrong.push(
      'reward.overlong_buffer.enable = true: not with rollout.context_compaction, whose episodes have no length limit to come near',
    );
  if (rollout.context_compaction.enable && rollout.max_tokens_per_turn >= rollout.max_model_len)
    wrong.push(
      `rollout.max_tokens_per_turn = ${rollout.max_tokens_per_turn}: below rollout.max_model_len = ${rollout.max_model_len} with rollout.context_compaction, which leaves room for a whole turn`,
    );
  if (overlong.enable && overlong.len > rollout.max_model_len) {
    wrong.push(`reward.overlong_buffer.len = ${overlong.len}: at most rollout.max_model_len = ${rollout.max_model_len}`);
  }
  if (rollout.max_tokens_per_turn >= rollout.max_model_len) {
    wrong.push(
      `rollout.max_tokens_per_turn = ${rollout.max_tokens_per_turn}: must be below rollout.max_model_len = ${rollout.max_model_len}`,
    );
  }
  if (actor.ppo_micro_batch_size_tokens < rollout.max_model_len) {
    wrong.push(
      `actor.ppo_micro_batch_size_tokens = ${actor.ppo_micro_batch_size_tokens}: at least rollout.max_model_len = ${rollout.max_model_len}, so that one episode fits`,
    );
  }
  return wrong;
}

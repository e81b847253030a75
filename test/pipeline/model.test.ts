// Whether a saved model can serve a run: its vocabulary against the environment's tokenizer, its shape against the settings; before anything starts.
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t from 'tap';
import { dialogueOf, entry, parseConfig, Tokenizer, train } from '../../actors/index.ts';
import { runMemory } from '../../actors/pipeline/memory.ts';
import { resolveModel } from '../../actors/pipeline/model.ts';
import { checkRoom } from '../../actors/pipeline/room.ts';
import { writeManifest } from '../../actors/trainer/checkpoint-manifest.ts';
import { parseModelConfig, WeightStore } from '../../kernels/index.ts';
import { explain } from '../../scripts/errors.ts';
import { tiny } from './tiny-settings.ts';

const own = dialogueOf(entry('desk'), { model: null });
const { chat } = own;
const size = chat.tokenizer.vocabularySize;
const settings = (values: Record<string, unknown>) =>
  parseConfig([
    { source: 'tiny', values: tiny },
    { source: 'test', values },
  ]);
const fresh = resolveModel(settings({}), own);

/** A folder with a model of `vocabulary` tokens, and perhaps a tokenizer. */
function saved(folder: string, vocabulary: number, tokenizer?: Tokenizer): string {
  const store = WeightStore.create({ ...fresh, vocab_size: vocabulary });
  store.initialise(1);
  store.saveFolder(folder);
  store.close();
  tokenizer?.save(folder);
  return folder;
}
const mismatch = (message: RegExp) => ({ code: 'SINKFLEX_MODEL_MISMATCH', message });
const from = (path: string) => () => resolveModel(settings({ 'model.path': path }), dialogueOf(entry('desk'), { model: path }));

t.test('a model fits when its tokens are those of the environment', async (t) => {
  const root = t.testdir();
  t.same(from(saved(join(root, 'plain'), size))(), fresh);
  t.match(from(saved(join(root, 'padded'), size + 9, chat.tokenizer))(), { vocab_size: size + 9 }, 'more rows than tokens do no harm');
  const both = (has: number) => mismatch(new RegExp(`"desk".* vocab_size of the model is ${has}, .* has ${size} tokens`));
  t.throws(from(saved(join(root, 'small'), 40)), both(40));
  t.throws(from(saved(join(root, 'large'), size + 9)), both(size + 9));

  const text = JSON.stringify(chat.tokenizer.files.tokenizer);
  const word = chat.tokenizer.token(size - 1)!;
  const files = {
    tokenizer: JSON.parse(text.replaceAll(JSON.stringify(word), '"elsewhere"')),
    tokenizerConfig: chat.tokenizer.files.tokenizerConfig,
  };
  t.throws(
    from(saved(join(root, 'other'), size, new Tokenizer(files))),
    mismatch(new RegExp(`token ${size - 1} of the model is "elsewhere", .*"${word}"`)),
  );
  t.throws(from(join(root, 'nowhere')), { code: 'SINKFLEX_CHECKPOINT_MISSING' });
});

t.test('a run that goes on keeps its shape', async (t) => {
  const checkpoint = join(t.testdir(), 'step-0000000001');
  saved(join(checkpoint, 'model'), size, chat.tokenizer);
  t.same(resolveModel(settings({}), own, checkpoint), fresh);
  t.throws(
    () => resolveModel(settings({ 'model.hidden_size': 48 }), own, checkpoint),
    mismatch(/hidden_size = 32, the settings ask for 48.*leave model\.hidden_size/),
  );
  t.throws(
    () => resolveModel(settings({ 'model.first_layer_type': 'sliding_attention' }), own, checkpoint),
    mismatch(/model\.first_layer_type/),
  );
});

t.test('nothing is written for a run that cannot start, and the user can put it right', async (t) => {
  const root = t.testdir();
  const path = saved(join(root, 'small'), 40);
  const error = await train(settings({ 'model.path': path, output: join(root, 'run') }), { preset: 'tiny' }).catch((e: unknown) => e);
  t.match(explain(error), { exitCode: 2, text: /^SINKFLEX_MODEL_MISMATCH/ });
  t.notOk(existsSync(join(root, 'run')));
  // A run folder whose only checkpoint is another model's is left as it was.
  const checkpoint = join(root, 'old/checkpoints/step-0000000001');
  saved(join(checkpoint, 'model'), 40);
  writeFileSync(join(root, 'old/config.yaml'), '');
  writeFileSync(join(checkpoint, 'trainer.json'), '{ "format": 1 }');
  await writeManifest(checkpoint);
  const resumed = await train(settings({ resume: join(root, 'old') }), { preset: 'tiny' }).catch((e: unknown) => e);
  t.match(explain(resumed), { exitCode: 2, text: /MODEL_MISMATCH.*step-0000000001/ });
  t.notOk(readdirSync(join(root, 'old')).includes('metrics.jsonl'));
});

t.test('a model that the machine has no room for is refused before anything starts, with sizes and what to lower', async (t) => {
  const run = join(t.testdir(), 'run');
  const refused = await train(settings({ 'model.hidden_size': 1e8, output: run }), { preset: 'tiny' }).catch((e: unknown) => e);
  t.match(explain(refused), {
    exitCode: 2,
    text: /MEMORY_SHORT.*hidden_size 100000000.*lower .*model\.hidden_size/,
  });
  t.notOk(existsSync(run));

  const image = WeightStore.imageBytes(fresh);
  const short = (values: Record<string, unknown>, room: { memory?: number; disk?: number }) => {
    try {
      checkRoom(settings(values), fresh, { memory: 1e9, disk: 100 * image, ...room });
      return undefined;
    } catch (e) {
      return explain(e);
    }
  };
  const { total, ...parts } = runMemory(settings({}), fresh);
  t.match(parts, { weights: 3 * image }, 'slots of the store');
  t.ok(
    parts.gradients < image && parts.optimizer < 2 * image + 128 && parts.reference > 2 * image && parts.cache > 0 && parts.activations > 0,
  );
  t.equal(short({}, { memory: total }), undefined);
  t.match(short({}, { memory: total - 1 }), {
    exitCode: 2,
    text: /MEMORY_SHORT.*needs .* MiB of memory.*: weights .* MiB, gradients .*, optimizer .*, activations .*, reference .*, cache .*; set actor\.ppo_micro_batch_size_tokens=160 \(.*which fits\), or actor\.use_kl_loss=false \(.*lower model\.hidden_size/,
  });
  t.equal(short({ 'actor.use_kl_loss': false }, { memory: total - parts.reference }), undefined);
  // Weights and 2 moments each: two that are kept, one that is written; the reference once.
  const keep = { 'trainer.max_ckpt_to_keep': 2 };
  const disk = 4 * image + 3 * parts.optimizer;
  t.equal(short(keep, { disk }), undefined);
  t.equal(short({ ...keep, 'model.dtype': 'bfloat16', 'actor.optim.optimizer': 'adamw_8bit' }, { disk: 0.6 * disk }), undefined);
  t.match(short(keep, { disk: disk - 1 }), { exitCode: 2, text: /DISK_FULL.*3 checkpoints.*lower trainer\.max_ckpt_to_keep/ });
  t.equal(short({ 'trainer.total_training_steps': 0 }, { disk: 7 * image }), undefined, 'no more than a run writes');
});

t.test('adapters are learnt where all weights would not fit; each remedy that is named takes what is said', async (t) => {
  const qwen = parseModelConfig({
    model_type: 'qwen2',
    vocab_size: 151936,
    hidden_size: 896,
    intermediate_size: 4864,
    num_hidden_layers: 24,
    num_attention_heads: 14,
    num_key_value_heads: 2,
    rms_norm_eps: 1e-6,
    rope_theta: 1e6,
    tie_word_embeddings: true,
    max_position_embeddings: 32768,
  });
  const values = { 'model.path': 'x', 'rollout.max_model_len': 4096, 'rollout.kv_cache_tokens': 32768, 'rollout.max_tokens_per_turn': 256 };
  const full = runMemory(settings(values), qwen);
  const lora = runMemory(settings({ ...values, 'model.lora_rank': 16 }), qwen);
  t.ok(lora.total < 0.6 * full.total, `${lora.total} of ${full.total}`);
  t.ok(lora.weights < 1.1 * WeightStore.imageBytes(qwen), 'the model below once');
  const error = t.throws(() => checkRoom(settings(values), qwen, { memory: full.total - 1, disk: 1e13 }), {
    code: 'SINKFLEX_MEMORY_SHORT',
  });
  const { message } = error as unknown as Error;
  t.match(message, /model\.lora_rank=16 \(.*which fits/);
  t.notMatch(message, /model\.hidden_size,/);
  for (const [, setting, size] of message.matchAll(/(\S+=\S+) \(([\d.]+) GiB/g)) {
    const [key, value] = setting!.split('=') as [string, string];
    const set = /^(true|false|\d+)$/.test(value) ? JSON.parse(value) : value;
    const then = runMemory(settings({ ...values, [key]: set }), qwen);
    t.equal((then.total / 2 ** 30).toFixed(1), size, String(setting));
  }
});

t.test('fresh weights are made in slices: the same bits, the loop turns, and an abort is heard', async (t) => {
  const wide = { ...fresh, vocab_size: 40_000 };
  const image = (store: WeightStore): Buffer => {
    const pin = store.pin();
    const copy = Buffer.from(pin.data);
    pin.release();
    return copy;
  };
  const whole = WeightStore.create(wide);
  const sliced = WeightStore.create(wide);
  t.teardown(() => {
    whole.close();
    sliced.close();
  });
  const stop = new AbortController();
  const turned = new Promise<void>((resolve) => setImmediate(() => resolve(stop.abort())));
  await t.rejects(sliced.initialiseAsync(7, { signal: stop.signal }), { name: 'AbortError' });
  await turned;
  t.equal(sliced.current(), undefined, 'nothing was published');
  whole.initialise(7, 2);
  await sliced.initialiseAsync(7, { lineage: 2 });
  t.match(sliced.current(), { lineage: 2, version: 0 });
  t.ok(image(whole).equals(image(sliced)));
});

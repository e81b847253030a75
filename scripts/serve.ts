// `sinkflex serve`: an OpenAI-compatible endpoint over a model folder or a run's checkpoint.
import { randomBytes, randomInt } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename, resolve } from 'node:path';
import { Command, Option } from 'commander';
import { createServer } from '../actors/index.ts';
import { type WeightDtype, weightDtypes } from '../kernels/index.ts';
import { CommandError } from './errors.ts';
import { openModel } from './model-folder.ts';
import { deviceOption, port, wholeNumber } from './option-values.ts';
import { stopSignal } from './stop-signal.ts';

interface ServeOptions {
  host: string;
  port: number;
  servedModelName?: string;
  maxNumSeqs: number;
  maxModelLen?: number;
  threads: number;
  device: string;
  dtype: WeightDtype;
  apiKeyFile?: string;
  tlsCert?: string;
  tlsKey?: string;
  seed?: number;
  maxNumBatchedTokens?: number;
  kvCacheTokens?: number;
  prefixCaching: boolean;
  drainTimeout: number;
}

export function serveCommand(): Command {
  return new Command('serve')
    .summary('an OpenAI-compatible endpoint over a model')
    .description(
      'Serves chat completions and completions (streaming, tools, log-probabilities, token ids in and out) to any OpenAI client.\n' +
        'Callers present the key of SINKFLEX_API_KEY or --api-key-file; without either a new one is made and printed.',
    )
    .argument(
      '<folder>',
      'a Hugging Face folder (config.json, model.safetensors, tokenizer.json), org/name of the hub, a run folder, or one of its checkpoints',
    )
    .option('--host <address>', 'address to listen at; other than loopback only with TLS', '127.0.0.1')
    .option('-p, --port <port>', 'port to listen at; 0: any free one', port, 8000)
    .option('--served-model-name <name>', "name that requests use; default the folder's")
    .option('--max-num-seqs <n>', 'sequences that generate at a time', wholeNumber(1), 16)
    .option(
      '--max-model-len <tokens>',
      'tokens of prompt and answer together; default what the model was made for, at most 4096',
      wholeNumber(2),
    )
    .option('--threads <n>', 'threads of the engine; default all processors', wholeNumber(1), availableParallelism())
    .addOption(deviceOption())
    .addOption(
      new Option('--dtype <dtype>', 'what the weights are held in; bfloat16 halves their memory, mxfp4 keeps experts that are stored so')
        .choices(weightDtypes)
        .default('float32'),
    )
    .option(
      '--max-num-batched-tokens <n>',
      'token rows of one step, decoding and prompts together; default --max-num-seqs + 256',
      wholeNumber(1),
    )
    .option('--kv-cache-tokens <n>', 'bound of the key/value cache; default --max-num-seqs times --max-model-len', wholeNumber(1))
    .option('--no-prefix-caching', 'read every prompt anew')
    .option(
      '--drain-timeout <seconds>',
      'how long answers under way may take after Ctrl-C or SIGTERM; again ends them at once',
      wholeNumber(0),
      30,
    )
    .option('--api-key-file <file>', 'file that holds the API key')
    .option('--tls-cert <file>', 'PEM certificate')
    .option('--tls-key <file>', 'PEM key')
    .option('--seed <n>', 'seed of the first request that names none, the next takes the next; default a random one', wholeNumber(0))
    .addHelpText(
      'after',
      '\nExamples\n  sinkflex serve runs/20260131T090503Z-desk\n  curl -H "Authorization: Bearer $KEY" http://127.0.0.1:8000/v1/models\n',
    )
    .action(serve);
}

async function serve(target: string, o: ServeOptions): Promise<void> {
  if ((o.tlsCert === undefined) !== (o.tlsKey === undefined))
    throw new CommandError('SINKFLEX_USAGE', '--tls-cert and --tls-key go together');
  const tls = o.tlsCert === undefined ? undefined : { cert: readOption('--tls-cert', o.tlsCert), key: readOption('--tls-key', o.tlsKey!) };
  if (tls === undefined && !isLoopback(o.host))
    throw new CommandError(
      'SINKFLEX_USAGE',
      `--host ${o.host} is not loopback: others could read the key on the way; give --tls-cert and --tls-key`,
    );
  const { key, made } = apiKey(o.apiKeyFile);
  const stop = stopSignal(undefined, o.drainTimeout * 1000 + 2000);
  const model = await openModel(target, stop.signal, {
    dtype: o.dtype,
    name: o.servedModelName ?? basename(resolve(target)),
    ...(o.maxModelLen === undefined ? {} : { maxModelLength: o.maxModelLen }),
    maxSequences: o.maxNumSeqs,
    threads: o.threads,
    device: o.device,
    engine: {
      prefixCaching: o.prefixCaching,
      ...(o.maxNumBatchedTokens === undefined ? {} : { maxNumBatchedTokens: o.maxNumBatchedTokens }),
      ...(o.kvCacheTokens === undefined ? {} : { cacheTokens: o.kvCacheTokens }),
    },
  });
  let seed = o.seed ?? randomInt(2 ** 32);
  const app = createServer({ model, apiKey: key, ...(tls === undefined ? {} : { tls }), nextSeed: () => seed++, draining: stop.signal });
  try {
    const address = await app.listen({ host: o.host, port: o.port });
    process.stdout.write(`serving ${model.name} at ${address}/v1 (${model.maxLength} tokens, ${o.maxNumSeqs} sequences)\n`);
    if (made) process.stdout.write(`API key: ${key}\n`);
    if (!stop.signal.aborted) await new Promise((resolve) => stop.signal.addEventListener('abort', resolve, { once: true }));
    let timer: NodeJS.Timeout | undefined;
    await Promise.race([app.idle(), new Promise((resolve) => (timer = setTimeout(resolve, o.drainTimeout * 1000)))]);
    clearTimeout(timer);
  } finally {
    // What is still under way ends with its connection.
    await app.close();
    await model.close();
    stop.dispose();
  }
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
}

function readOption(option: string, file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (cause) {
    throw new CommandError('SINKFLEX_USAGE', `${option}: ${(cause as Error).message}`, { cause });
  }
}

function apiKey(file: string | undefined): { key: string; made: boolean } {
  const given = file === undefined ? process.env.SINKFLEX_API_KEY : readOption('--api-key-file', file).toString('utf8').trim();
  if (given !== undefined && given.length < 8)
    throw new CommandError(
      'SINKFLEX_USAGE',
      `the API key of ${file ?? 'SINKFLEX_API_KEY'} has ${given.length} characters; it needs 8 at least`,
    );
  return given === undefined ? { key: randomBytes(24).toString('base64url'), made: true } : { key: given, made: false };
}

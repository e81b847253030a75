// `sinkflex evaluate --endpoint URL`: the held-out tasks of an environment, played by whatever model answers there.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type EndpointEvaluation, evaluateEndpoint } from '../actors/index.ts';
import { CommandError } from './errors.ts';
import { compose } from './presets.ts';
import { stopSignal } from './stop-signal.ts';
import { interval, table } from './text.ts';

export interface EndpointOptions {
  endpoint: string;
  model?: string;
  apiKeyEnv: string;
  output?: string;
  json?: boolean;
}

export async function evaluateAtEndpoint(words: readonly string[], o: EndpointOptions): Promise<void> {
  const preset = words.find((word) => !word.includes('='));
  const { config } = await compose({ ...(preset === undefined ? {} : { preset }), words: words.filter((word) => word !== preset) });
  const stop = stopSignal();
  let shown = 0;
  try {
    const model = o.model ?? (await firstModel(o));
    const result = await evaluateEndpoint(config, {
      endpoint: { baseUrl: o.endpoint, apiKeyEnv: o.apiKeyEnv, retries: 4, backoffMs: 500, timeoutMs: 600_000 },
      model,
      signal: stop.signal,
      onProgress: (done, of) => {
        if (Date.now() - shown < 1000 && done < of) return;
        shown = Date.now();
        process.stderr.write(`${done} of ${of} episodes\n`);
      },
    });
    if (o.output !== undefined) write(o.output, result, { endpoint: o.endpoint, model, environment: config.env.name });
    const { episodes: _, ...numbers } = result;
    if (o.json) process.stdout.write(`${JSON.stringify({ environment: config.env.name, model, ...numbers })}\n`);
    else process.stdout.write(`\n${table(rowsOf(result, model), { indent: '  ' })}\n`);
  } finally {
    stop.dispose();
  }
}

function rowsOf(r: EndpointEvaluation, model: string): string[][] {
  return [
    ['model', model],
    [`mean@${r.n}`, interval(r.score)],
    ...r.passRates.flatMap(({ k, passAtK, passHatK }) => [
      [`pass@${k}`, interval(passAtK)],
      [`pass^${k}`, interval(passHatK)],
    ]),
    ['held-out tasks', String(r.tasks)],
    ['temperature', String(r.temperature)],
    ...(r.failed > 0 ? [['left out', `${r.failed} episodes that the endpoint or the environment failed in`]] : []),
  ];
}

function write(folder: string, { episodes, ...numbers }: EndpointEvaluation, of: Record<string, string>): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'result.json'), `${JSON.stringify({ ...of, ...numbers }, null, 2)}\n`);
  writeFileSync(join(folder, 'episodes.jsonl'), episodes.map((episode) => `${JSON.stringify(episode)}\n`).join(''));
}

/** What the endpoint says that it serves. */
async function firstModel(o: EndpointOptions): Promise<string> {
  const key = process.env[o.apiKeyEnv];
  const url = `${o.endpoint.replace(/\/$/, '')}/models`;
  const refuse = (what: string, cause?: unknown): never => {
    throw new CommandError('SINKFLEX_USAGE', `${url}: ${what}: give --model`, cause === undefined ? {} : { cause });
  };
  let answer: unknown;
  try {
    const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
    const response = await fetch(url, { headers, signal: AbortSignal.timeout(30_000) });
    if (!response.ok) return refuse(`HTTP ${response.status}`);
    answer = await response.json();
  } catch (cause) {
    return refuse((cause as Error).message, cause);
  }
  const id = (answer as { data?: { id?: unknown }[] } | null)?.data?.[0]?.id;
  return typeof id === 'string' ? id : refuse('it names no model');
}

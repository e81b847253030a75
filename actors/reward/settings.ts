/** The reward of a run, from its settings: `reward.path` for one function of the user's, `reward.components` for a composition. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { ActorsError } from '../errors.ts';
import { RewardComposition } from './compose.ts';
import { EngineStates } from './engine-states.ts';
import { JudgeReward } from './judge.ts';
import { checkModuleReward, moduleReward } from './module-reward.ts';
import { modelReward, readHead } from './reward-model.ts';
import { environmentReward, RULES, ruleReward } from './rules.ts';
import type { RewardComponent } from './types.ts';

const counting = {
  name: z.string().regex(/^[A-Za-z][\w-]*$/, 'letters, digits, _ and -'),
  weight: z.number().default(1),
  gate: z.number().optional(),
  timeout_s: z.number().gt(0).max(3600).default(30),
};
const rules = Object.keys(RULES) as [string, ...string[]];

export const RewardComponentSettings = z.discriminatedUnion('kind', [
  z.strictObject({ kind: z.literal('environment'), ...counting, part: z.string().optional() }),
  z.strictObject({ kind: z.literal('rule'), ...counting, rule: z.enum(rules), argument: z.number().gt(0).default(8) }),
  z.strictObject({ kind: z.literal('module'), ...counting, path: z.string().min(1), export: z.string().default('default') }),
  z.strictObject({
    kind: z.literal('model'),
    ...counting,
    /** The model's folder. */
    path: z.string().min(1),
    /** The head's file; `reward-head.json` in the folder otherwise. */
    head: z.string().min(1).optional(),
    threads: z.int().min(1).max(256).default(1),
    max_tokens: z.int().min(1).default(8192),
  }),
  z.strictObject({
    kind: z.literal('judge'),
    ...counting,
    base_url: z.url(),
    model: z.string().min(1),
    rubric: z.string().min(1),
    api_key_env: z.string().optional(),
    scale: z.number().gt(0).default(10),
    retries: z.int().min(0).max(20).default(3),
    budget: z.int().min(1).default(10_000),
  }),
]);
export type RewardComponentSettings = z.output<typeof RewardComponentSettings>;

export interface RewardSettings {
  path: string | null;
  components: readonly RewardComponentSettings[];
}

/** undefined: the environment's own score is the reward. */
export function composeReward(s: RewardSettings): RewardComposition | undefined {
  const components: RewardComponentSettings[] = [...s.components];
  if (s.path !== null) components.push({ kind: 'module', name: 'custom', weight: 1, timeout_s: 30, path: s.path, export: 'default' });
  if (components.length === 0) return undefined;
  const twice = components.find((c, i) => components.findIndex((other) => other.name === c.name) < i);
  if (twice)
    throw new ActorsError('SINKFLEX_REWARD_OPTION', `reward.components: two are named "${twice.name}"`, { details: { name: twice.name } });
  return new RewardComposition(
    components.map((c) => ({
      component: componentOf(c),
      weight: c.weight,
      timeoutMs: c.timeout_s * 1000,
      ...(c.gate === undefined ? {} : { gate: c.gate }),
    })),
  );
}

/** Names of the components, for metrics. */
export const rewardNames = (s: RewardSettings): string[] => [...s.components.map((c) => c.name), ...(s.path === null ? [] : ['custom'])];

/** What would only fail in the first episode: modules that cannot be imported, models without weights, judges that do not answer, keys that are not set. */
export async function checkReward(s: RewardSettings): Promise<void> {
  composeReward(s);
  if (s.path !== null) await checkModuleReward('reward.path', { path: s.path });
  for (const c of s.components) {
    if (c.kind === 'module') await checkModuleReward(`reward ${c.name}: path`, c);
    if (c.kind === 'judge' && c.api_key_env !== undefined && process.env[c.api_key_env] === undefined) {
      throw new ActorsError(
        'SINKFLEX_REWARD_OPTION',
        `reward ${c.name}: the environment variable ${c.api_key_env} (api_key_env) is not set`,
        {
          details: { component: c.name },
        },
      );
    }
    if (c.kind === 'judge') await checkJudge(c);
    if (c.kind === 'model' && !readdirSync(c.path).some((name) => name.endsWith('.safetensors')))
      throw new ActorsError('SINKFLEX_REWARD_OPTION', `reward ${c.name}: there are no weights (*.safetensors) in ${c.path}`, {
        details: { component: c.name },
      });
  }
}

const REACH_MS = 10_000;

/** The endpoint answers and takes the key. Not all have a list of models; any other answer says that somebody is there. */
async function checkJudge(c: Extract<RewardComponentSettings, { kind: 'judge' }>): Promise<void> {
  const refuse = (why: string, cause?: unknown): never => {
    throw new ActorsError('SINKFLEX_REWARD_OPTION', `reward ${c.name}: the judge at ${c.base_url} ${why}`, {
      cause,
      details: { component: c.name },
    });
  };
  const key = c.api_key_env === undefined ? undefined : process.env[c.api_key_env];
  const headers: Record<string, string> = key === undefined ? {} : { authorization: `Bearer ${key}` };
  let status = 0;
  try {
    const answer = await fetch(`${c.base_url.replace(/\/$/, '')}/models`, { headers, signal: AbortSignal.timeout(REACH_MS) });
    await answer.body?.cancel();
    ({ status } = answer);
  } catch (cause) {
    const { name, message, cause: inner } = cause as Error & { cause?: Error };
    refuse(name === 'TimeoutError' ? `did not answer within ${REACH_MS} ms` : `cannot be reached (${inner?.message ?? message})`, cause);
  }
  if (status === 401 || status === 403) refuse(`refuses the key (HTTP ${status}); api_key_env names the variable that holds it`);
  if (status >= 500) refuse(`is in trouble (HTTP ${status})`);
}

function componentOf(c: RewardComponentSettings): RewardComponent {
  switch (c.kind) {
    case 'environment':
      return environmentReward(c.name, c.part);
    case 'rule':
      return ruleReward(c.name, c.rule, c.argument);
    case 'module':
      return moduleReward(c.name, { path: c.path, export: c.export });
    case 'model':
      return modelReward(
        c.name,
        new EngineStates(c.path, { threads: c.threads, maxTokens: c.max_tokens }),
        readHead(c.head ?? join(c.path, 'reward-head.json')),
      );
    case 'judge':
      return new JudgeReward(c.name, {
        baseUrl: c.base_url,
        model: c.model,
        rubric: c.rubric,
        scale: c.scale,
        retries: c.retries,
        budget: c.budget,
        ...(c.api_key_env === undefined ? {} : { apiKeyEnv: c.api_key_env }),
      });
  }
}

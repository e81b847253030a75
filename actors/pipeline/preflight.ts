/** What a run needs of its user and machine, asked in the driver before the run folder is made or anything is started. */
import { cpSync, existsSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { cpu, deviceChoice, isSinkflexError, probeDevice, SinkflexError } from '../../kernels/index.ts';
import { entry, make } from '../environment/index.ts';
import { ActorsError } from '../errors.ts';
import { checkReward } from '../reward/index.ts';
import { ConfigError, type TrainingConfig } from './config.ts';
import type { RunFolder } from './run-folder.ts';
import { environmentOptions, usesReference } from './settings.ts';

/** SINKFLEX_CPU_UNSUPPORTED where SINKFLEX_CPU asks for what cannot run here. */
export function checkCpu(): void {
  try {
    void cpu.isa;
  } catch (cause) {
    const known = process.arch === 'x64' ? 'avx512, avx2 and portable' : process.arch === 'arm64' ? 'neon and portable' : 'portable';
    throw new SinkflexError(
      'SINKFLEX_CPU_UNSUPPORTED',
      `this machine or build cannot run SINKFLEX_CPU=${process.env.SINKFLEX_CPU ?? ''}: unset it, and the best that runs here is taken (for this kind of machine there are ${known})`,
      { cause },
    );
  }
}

/** What the run is to compute on is there: SINKFLEX_BACKEND_MISSING or SINKFLEX_DEVICE_UNAVAILABLE where it is not. Rollouts of other hosts have theirs. */
export function checkDevices({ actor, cluster, reference, rollout }: TrainingConfig): void {
  const here = [actor, reference, ...(cluster.launcher === null && cluster.address === null ? [rollout] : [])];
  for (const name of new Set(here.flatMap(({ device }) => device))) probeDevice(deviceChoice(name));
}

/** Creates the environment once with the options of the run: SINKFLEX_ENVIRONMENT_OPTION here, not in every actor. */
export async function checkEnvironment(config: TrainingConfig): Promise<void> {
  const { env, resume, sft } = config;
  if (sft.total_steps > 0 && resume === null && !entry(env.name).demonstrate)
    throw new ConfigError([`sft.total_steps = ${sft.total_steps}: must be 0 with ${env.name}, which has no expert to learn from`]);
  try {
    await make(config.env.name, environmentOptions(config)).close();
    await checkReward(config.reward);
    await entry(config.env.name).prepare?.(environmentOptions(config));
  } catch (cause) {
    if (isSinkflexError(cause)) throw cause;
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new ActorsError(
      'SINKFLEX_ENVIRONMENT_OPTION',
      `the environment "${config.env.name}" cannot be made with ${JSON.stringify(environmentOptions(config))} (env.level, env.max_turns, env.options): ${why}`,
      { cause },
    );
  }
}

/** Where the reference has its weights. */
export const referenceFolder = (folder: RunFolder): string => folder.file('reference');

export const hasReference = (folder: RunFolder): boolean =>
  existsSync(join(referenceFolder(folder), 'config.json')) &&
  ['model.safetensors', 'adapter_model.safetensors'].some((name) => existsSync(join(referenceFolder(folder), name)));

/** Keeps the weights of a model folder as the reference: whole, or what stood there before. */
export function writeReference(folder: RunFolder, model: string): void {
  const place = referenceFolder(folder);
  const temporary = `${place}.tmp`;
  rmSync(temporary, { recursive: true, force: true });
  cpSync(model, temporary, { recursive: true });
  rmSync(place, { recursive: true, force: true });
  renameSync(temporary, place);
}

/** A run that goes on needs the reference that it began with; the checkpoint before the first step has the same weights. */
export function checkReference(config: TrainingConfig, folder: RunFolder): void {
  if (!usesReference(config) || hasReference(folder) || folder.checkpoints().includes(0)) return;
  throw new ActorsError(
    'SINKFLEX_CHECKPOINT_INVALID',
    `${referenceFolder(folder)} does not hold the reference (config.json, model.safetensors) that the KL term of this run needs, and there is no checkpoint of step 0 to make it from: put the folder back, or go on without it with actor.use_kl_loss=false algorithm.use_kl_in_reward=false`,
    { details: { folder: folder.path } },
  );
}

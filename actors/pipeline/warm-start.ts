/**
 * The warm start: supervised steps on demonstrations of an expert that errs as a weak policy would. Demonstrations are written by the
 * rollout actors, which are idle meanwhile; the order of the steps is a function of the seed.
 */
import { type DemonstrationBatch, DemonstrationOrder, learningRate, type MaskedSequence, packDemonstrations } from '../trainer/index.ts';
import type { TrainingConfig } from './config.ts';
import { isLoss } from './pool.ts';
import { warmStartSchedule } from './settings.ts';

/** One written demonstration, and what its writer earned. */
export interface EncodedDemonstration extends MaskedSequence {
  reward: number;
}

export interface DemonstrationWriter {
  demonstrate(from: number, to: number): PromiseLike<EncodedDemonstration[]>;
}

export interface SftTrainer {
  sft(
    batch: DemonstrationBatch,
    o: { lr: number; weightDecay: number; gradClip: number },
  ): PromiseLike<{ loss: number; gradNorm: number; tokens: number; version: number }>;
}

export interface WarmStartProgress {
  step: number;
  metrics: Record<string, number>;
}

/** Demonstrations written in one call. */
const chunk = 64;
/** A writer that dies is restarted by the runtime and asked again this often. */
const writerRetries = 8;

/** Writes the demonstrations, dealt over the writers; the result does not depend on how many there are. */
export async function writeDemonstrations(writers: readonly DemonstrationWriter[], count: number): Promise<EncodedDemonstration[]> {
  const chunks = Math.ceil(count / chunk);
  const parts: EncodedDemonstration[][] = new Array(chunks);
  let next = 0;
  await Promise.all(
    writers.map(async (w) => {
      for (let i = next++; i < chunks; i = next++) {
        const last = Math.min(count, (i + 1) * chunk);
        for (let attempt = 0; !parts[i]; attempt++) {
          try {
            parts[i] = await w.demonstrate(i * chunk, last);
          } catch (e) {
            if (!isLoss(e) || attempt >= writerRetries) throw e;
          }
        }
      }
    }),
  );
  return parts.flat();
}

export async function warmStart(o: {
  config: TrainingConfig;
  demonstrations: readonly EncodedDemonstration[];
  trainer: SftTrainer;
  signal: AbortSignal;
  onStep: (p: WarmStartProgress) => void;
}): Promise<{ steps: number; seconds: number }> {
  const { config, demonstrations, trainer, signal } = o;
  const { sft } = config;
  const order = new DemonstrationOrder(demonstrations.length, config.seed);
  const schedule = warmStartSchedule(config);
  const began = performance.now();
  const elapsed = () => (performance.now() - began) / 1000;
  const start = (step: number) => {
    const batch = packDemonstrations(order.next(sft.train_batch_size).map((i) => demonstrations[i]!));
    const lr = learningRate(schedule, step);
    return { lr, result: Promise.resolve(trainer.sft(batch, { lr, weightDecay: sft.weight_decay, gradClip: config.actor.grad_clip })) };
  };
  // Two steps are with the trainer at any time: it never waits for the next batch.
  let pending = sft.total_steps > 0 ? start(0) : undefined;
  let step = 0;
  while (pending) {
    const more = step + 1 < sft.total_steps && (sft.time_budget_s === null || elapsed() < sft.time_budget_s);
    const next = more ? start(step + 1) : undefined;
    // If this one fails the next one fails too, unseen.
    next?.result.catch(() => {});
    const { loss, gradNorm, tokens } = await pending.result;
    signal.throwIfAborted();
    step++;
    const seconds = elapsed();
    o.onStep({
      step,
      metrics: {
        'sft/global_step': step,
        'sft/loss': loss,
        'sft/grad_norm': gradNorm,
        'sft/lr': pending.lr,
        'sft/tokens': tokens,
        'timing_s/sft': seconds,
      },
    });
    pending = next;
  }
  return { steps: step, seconds: elapsed() };
}

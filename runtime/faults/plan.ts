// A plan of faults: what is to go wrong in a run, where and when. Plain data, from YAML or from a test; docs/faults.md has the table.
import * as z from 'zod';
import { RuntimeFailure } from '../api/errors.ts';

const UNITS = { ms: 1, s: 1000, m: 60_000 } as const;

/** `250ms`, `4s`, `1m`, or milliseconds. */
const duration = z.union(
  [
    z.number().nonnegative(),
    z
      .string()
      .regex(/^\d+(\.\d+)?(ms|s|m)$/)
      .transform((text) => Number.parseFloat(text) * UNITS[/[a-z]+$/.exec(text)![0] as keyof typeof UNITS]),
  ],
  { error: 'a time such as 250ms, 4s or 1m' },
);
const share = z.number().min(0).max(1);
const name = z.string().min(1);

/** Exactly one of the four says when. */
const when = {
  /** Since the plan began. */
  at: duration.optional(),
  every: duration.optional(),
  /** When the job has done so many steps. */
  step: z.number().int().nonnegative().optional(),
  everyStep: z.literal(true).optional(),
  /** Of happening at all, each time. */
  probability: share.default(1),
  /** At most; default once, or without end for `every` and `everyStep`. */
  times: z.number().int().positive().optional(),
};
const forMs = duration.default(2000);

/** `*` stands for anything. Which of several: one that is drawn, or all. */
const actor = z.strictObject({ actor: name, all: z.boolean().default(false) });
const node = z.strictObject({ node: name });
const head = z.strictObject({ head: z.literal(true) });
const process = z.union([actor, node, head]);
/** A process with connections to other hosts; the head has the other ends. */
const host = z.union([node, z.strictObject({ driver: z.literal(true) })]);

const fault = z.discriminatedUnion('fault', [
  z.strictObject({ fault: z.literal('kill'), target: process, ...when }),
  z.strictObject({ fault: z.literal('restart'), target: process, ...when }),
  z.strictObject({ fault: z.literal('stop'), target: process, for: forMs, ...when }),
  z.strictObject({ fault: z.literal('slow'), target: process, for: forMs, runs: share.default(0.2), ...when }),
  z.strictObject({
    fault: z.literal('links'),
    target: host,
    /** The other end: another node, the head, or (default) every one. */
    peer: z.union([node, head]).optional(),
    direction: z.enum(['out', 'in']).optional(),
    for: forMs,
    drop: share.optional(),
    duplicate: share.optional(),
    reorder: share.optional(),
    corrupt: share.optional(),
    delay: duration.optional(),
    jitter: duration.optional(),
    bytesPerSecond: z.number().positive().optional(),
    requestLost: share.optional(),
    replyLost: share.optional(),
    brokenBehind: share.optional(),
    ...when,
  }),
  z.strictObject({
    fault: z.literal('partition'),
    target: host,
    peer: z.union([node, head]).optional(),
    direction: z.enum(['out', 'in']).optional(),
    for: forMs,
    ...when,
  }),
  z.strictObject({
    fault: z.literal('fill-disk'),
    target: z.union([node, head]),
    folder: name,
    /** More free bytes than that are left alone. */
    most: z
      .number()
      .int()
      .positive()
      .default(2 ** 28),
    for: forMs,
    ...when,
  }),
]);

const plan = z.strictObject({ seed: z.number().int().nonnegative().default(1), faults: z.array(fault) });

export type Fault = z.output<typeof fault>;
export type FaultInput = z.input<typeof fault>;
export type FaultPlan = z.output<typeof plan>;
export type FaultPlanInput = z.input<typeof plan>;

/** Throws SINKFLEX_BAD_FAULTS, with the place of the mistake. */
export function parseFaults(value: unknown): FaultPlan {
  const parsed = plan.safeParse(value);
  if (!parsed.success) throw bad(z.prettifyError(parsed.error).replaceAll(/\s*\n\s*/g, '; '));
  for (const [i, each] of parsed.data.faults.entries()) {
    const said = (['at', 'every', 'step', 'everyStep'] as const).filter((key) => each[key] !== undefined);
    if (said.length !== 1)
      throw bad(`faults[${i}] (${each.fault}) says ${said.join(' and ') || 'not'} when: one of at, every, step, everyStep`);
    if (each.every === 0) throw bad(`faults[${i}] (${each.fault}): every 0 ms is never over`);
  }
  return parsed.data;
}

export const bad = (why: string): RuntimeFailure => new RuntimeFailure('SINKFLEX_BAD_FAULTS', why);

// What the schema of the settings is made of: ranges that many keys share, keys with their default, unit and description, and groups of them.
import { z } from 'zod';
import { deviceChoice } from '../../kernels/index.ts';

export const count = () => z.int().min(1);
export const positive = () => z.number().gt(0);
/** AdamW moves every weight by up to this much a step: above 1 no model survives it. */
export const learningRate = () => z.number().gt(0).max(1);
export const fraction = () => z.number().min(0).max(1);

/** One setting: its allowed values, default, unit ('' for none) and description. */
export function key<T extends z.ZodType>(allowed: T, standard: z.input<T>, unit: string, description: string) {
  return allowed.prefault(standard as never).meta({ unit, description });
}
/** A named group of settings; everything in it has a default. */
export const section = <S extends z.ZodRawShape>(shape: S) => z.strictObject(shape).prefault({} as never);

/** One device or several, which the actors of a kind are dealt out over in turn. */
export const devices = (what: string) =>
  key(
    z
      .union([z.string(), z.array(z.string()).min(1)])
      .superRefine((names, context) => {
        for (const name of [names].flat()) {
          try {
            deviceChoice(name);
          } catch (error) {
            context.addIssue({ code: 'custom', message: (error as Error).message });
          }
        }
      })
      .transform((names) => [names].flat()),
    'cpu',
    'devices',
    `${what}: cpu, cuda (the first GPU) or cuda:1, or a list that its actors are dealt out over (docs/cuda.md)`,
  );

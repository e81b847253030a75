// The list of all settings, read from the schema itself: for messages, `--help`, docs/configuration.md and the saved config.yaml.
import { z } from 'zod';
import { TrainingConfig } from './config-schema.ts';

export interface Setting {
  /** Dotted key. */
  key: string;
  description: string;
  /** Unit of the value, '' for none. */
  unit: string;
  default: unknown;
  /** What is allowed, in words. */
  allowed: string;
}

interface JsonSchema {
  type?: string;
  properties?: Record<string, JsonSchema>;
  description?: string;
  [name: string]: unknown;
}

let cached: Setting[] | undefined;

/** Every setting in schema order. */
export function settings(): readonly Setting[] {
  cached ??= [...walk(TrainingConfig, '', TrainingConfig.parse({}))];
  return cached;
}

/** The JSON schema of a settings file, for editors and for programs that write one. */
export const settingsSchema = (): object => ({
  title: 'Settings of SinkFlex',
  ...z.toJSONSchema(TrainingConfig, { unrepresentable: 'any', io: 'input' }),
});

function* walk(schema: z.ZodObject, prefix: string, defaults: unknown): Generator<Setting> {
  for (const [name, field] of Object.entries(schema.shape) as [string, z.ZodType][]) {
    const key = prefix + name;
    const value = (defaults as Record<string, unknown>)[name];
    const inner = unwrap(field);
    if (inner instanceof z.ZodObject) yield* walk(inner, `${key}.`, value);
    else {
      const meta = field.meta() as { description: string; unit: string };
      yield {
        key,
        description: meta.description,
        unit: meta.unit,
        default: value,
        allowed: words(z.toJSONSchema(inner, { unrepresentable: 'any', io: 'input' }) as JsonSchema),
      };
    }
  }
}

function unwrap(schema: z.ZodType): z.ZodType {
  return schema instanceof z.ZodPrefault || schema instanceof z.ZodDefault ? unwrap(schema.unwrap() as z.ZodType) : schema;
}

function words(s: JsonSchema): string {
  if (Array.isArray(s.anyOf)) return (s.anyOf as JsonSchema[]).map(words).join(' or ');
  if (Array.isArray(s.enum)) return (s.enum as unknown[]).map(String).join(', ');
  if (Array.isArray(s.prefixItems)) return `[${(s.prefixItems as JsonSchema[]).map(words).join(', ')}]`;
  switch (s.type) {
    case 'integer':
    case 'number':
      return `${s.type === 'integer' ? 'whole number' : 'number'}${bounds(s)}`;
    case 'boolean':
      return 'true, false';
    case 'null':
      return 'null';
    case 'object':
      return 'mapping';
    case 'array':
      return `list of ${words((s.items as JsonSchema | undefined) ?? {})}`;
    default:
      return typeof s.minLength === 'number' ? 'text (not empty)' : 'text';
  }
}

function bounds(s: JsonSchema): string {
  const parts: string[] = [];
  if (typeof s.exclusiveMinimum === 'number') parts.push(`> ${s.exclusiveMinimum}`);
  if (typeof s.minimum === 'number' && s.minimum > Number.MIN_SAFE_INTEGER) parts.push(`>= ${s.minimum}`);
  if (typeof s.exclusiveMaximum === 'number') parts.push(`< ${s.exclusiveMaximum}`);
  if (typeof s.maximum === 'number' && s.maximum < Number.MAX_SAFE_INTEGER) parts.push(`<= ${s.maximum}`);
  return parts.length > 0 ? ` ${parts.join(' and ')}` : '';
}

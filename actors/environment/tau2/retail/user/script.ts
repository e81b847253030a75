/** The file of scripted users: what each wants, in words of our own. Frozen: its digest names the version in every result. */
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { ActorsError } from '../../../../errors.ts';
import { sha256 } from '../../table.ts';

const Sentences = z.array(z.string().min(1)).min(1);

const Script = z.strictObject({
  who: z.strictObject({
    name: z.string().optional(),
    /** Several: said one after the other, the last one stays. */
    zip: z.union([z.string(), z.array(z.string()).min(1)]).optional(),
    email: z.string().optional(),
    email2: z.string().optional(),
    user: z.string().optional(),
  }),
  open: Sentences,
  more: Sentences.optional(),
  refused: Sentences.optional(),
  twist: Sentences.optional(),
  later: z.strictObject({ from: z.number().int().positive(), say: z.string().min(1) }).optional(),
  ask: z.string().min(1).optional(),
  pay: Sentences.optional(),
  address: Sentences.optional(),
  order: Sentences.optional(),
  reason: Sentences.optional(),
  which: z.string().min(1).optional(),
});
export type UserScript = z.infer<typeof Script>;

const File = z.strictObject({
  version: z.number().int().positive(),
  tasks: z.string(),
  scripts: z.record(z.string(), Script),
  /** Id and why there is none. */
  unscripted: z.record(z.string(), z.string()),
});

export interface ScriptFile {
  /** `1 (3f2a9c01)`: the version that the file names, and the beginning of its digest. */
  version: string;
  scripts: ReadonlyMap<string, UserScript>;
  unscripted: ReadonlyMap<string, string>;
}

const read = new Map<string, ScriptFile>();

/** The project's own file, or that of a path. SINKFLEX_ENVIRONMENT_OPTION where it cannot be read. Read once. */
export function scriptFile(path: string = ownFile()): ScriptFile {
  let file = read.get(path);
  if (file) return file;
  try {
    const text = readFileSync(path, 'utf8');
    // Few processes play scripted users: no other waits for this library.
    const { parse } = createRequire(import.meta.url)('yaml') as typeof import('yaml');
    const { version, scripts, unscripted } = File.parse(parse(text));
    file = {
      version: `${version} (${sha256(text).slice(0, 8)})`,
      scripts: new Map(Object.entries(scripts)),
      unscripted: new Map(Object.entries(unscripted)),
    };
  } catch (cause) {
    const why = cause instanceof z.ZodError ? `${cause.issues[0]!.path.join('.')}: ${cause.issues[0]!.message}` : (cause as Error).message;
    throw new ActorsError('SINKFLEX_ENVIRONMENT_OPTION', `option user_options.script: cannot use ${path}: ${why}`, {
      cause,
      details: { option: 'user_options.script', path },
    });
  }
  read.set(path, file);
  return file;
}

/** Beside the source; a built package has it in the source's place. */
function ownFile(): string {
  const parts = ['actors', 'environment', 'tau2', 'retail', 'scripts', 'users.yaml'];
  for (let at = dirname(fileURLToPath(import.meta.url)); ; at = dirname(at)) {
    const path = join(at, ...parts);
    if (existsSync(path)) return path;
    if (dirname(at) === at) throw new Error('the scripts of tau2-retail are not in the package');
  }
}

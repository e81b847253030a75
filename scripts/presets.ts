// Where presets live, and how the words of a command line become one checked configuration.
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import {
  type ConfigLayer,
  didYouMean,
  loadConfig,
  parseOverrides,
  RunFolder,
  readConfigFile,
  type TrainingConfig,
} from '../actors/index.ts';
import { CommandError } from './errors.ts';
import { packageRoot } from './package-root.ts';

export const DEFAULT_PRESET = 'desk';

const PRESETS = join(packageRoot, 'scripts', 'presets');

export interface Preset {
  name: string;
  /** First comment line of the file. */
  summary: string;
}

export function listPresets(): Preset[] {
  return readdirSync(PRESETS)
    .filter((file) => file.endsWith('.yaml'))
    .map((file) => ({
      name: file.slice(0, -'.yaml'.length),
      summary: /^#\s*(.*)/.exec(readFileSync(join(PRESETS, file), 'utf8'))?.[1] ?? '',
    }))
    .sort((a, b) => (a.name === DEFAULT_PRESET ? -1 : b.name === DEFAULT_PRESET ? 1 : a.name.localeCompare(b.name)));
}

export function presetLayer(name: string): ConfigLayer {
  const known = listPresets().map((p) => p.name);
  if (!known.includes(name)) {
    const near = didYouMean(name, known);
    throw new CommandError(
      'SINKFLEX_PRESET_UNKNOWN',
      `there is no preset "${name}"${near ? `; did you mean ${near}?` : ''} (presets: ${known.join(', ')}; a file of your own goes with --config)`,
      { details: { name, known } },
    );
  }
  return { ...readConfigFile(join(PRESETS, `${name}.yaml`)), source: `preset ${name}` };
}

export interface Composition {
  preset?: string;
  /** YAML or TOML files, left to right. */
  files?: readonly string[];
  /** `key=value` words. */
  words?: readonly string[];
  /** Last layer: flags of the command line, or what a program passed. */
  values?: ConfigLayer;
}

/** preset < files < words < values; a run that is resumed, or replayed, gives its settings instead of a preset. */
export async function compose(c: Composition): Promise<{ preset: string; config: TrainingConfig }> {
  const late = [...(c.files ?? []).map(readConfigFile), parseOverrides(c.words ?? []), ...(c.values ? [c.values] : [])];
  const last = (key: string): unknown => late.map((l) => l.values[key]).findLast((v) => v !== undefined);
  const resume = last('resume');
  const replayed = last('debug.train_only');
  if (c.preset !== undefined && (typeof resume === 'string' || typeof replayed === 'string'))
    throw new CommandError(
      'SINKFLEX_USAGE',
      `a run that goes on or is replayed has the settings of ${resume ?? replayed}; leave the preset "${c.preset}" out and change what you want with key=value`,
    );
  if (typeof resume === 'string') {
    const folder = RunFolder.open(resume);
    const output = last('output');
    if (typeof output === 'string' && resolve(output) !== folder.path) {
      throw new CommandError(
        'SINKFLEX_USAGE',
        `a resumed run goes on in its own folder, ${folder.path}: leave --output ${output} out (to keep that folder as it is, copy it and resume the copy)`,
      );
    }
    const saved = folder.savedConfig();
    return { preset: 'resumed', config: await loadConfig([saved, { source: 'resume', values: { output: null } }, ...late]) };
  }
  if (typeof replayed === 'string') {
    // Nothing of where that run was sampled is needed.
    const values = {
      output: null,
      resume: null,
      'debug.rollout_only': false,
      'cluster.address': null,
      'trajectory.store': null,
      'trajectory.archive': null,
    };
    return { preset: 'replay', config: await loadConfig([RunFolder.open(replayed).savedConfig(), { source: 'replay', values }, ...late]) };
  }
  const preset = c.preset ?? DEFAULT_PRESET;
  return { preset, config: await loadConfig([presetLayer(preset), ...late]) };
}

// A run on disk: runs/<utc>-<preset>/ with everything that a person or `--resume` wants afterwards.
//
//   config.yaml  metrics.{jsonl,csv}  tensorboard/  trajectories/{trajectories.db|store.url}  checkpoints/step-0000000010/  curve.svg
//   transcripts/{failed,solved}.txt  actors.json  ledger.json  faults.json  result.json  report.html
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statfsSync, statSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { parse, stringify } from 'yaml';
import { checkpointName, checkpointSteps, newestWhole, setAside, sweepCheckpoints, type WholeCheckpoint } from '../trainer/index.ts';
import { openTrajectoryStore, type TrajectoryStore } from '../trajectory/index.ts';
import { type ConfigLayer, settings, type TrainingConfig } from './config.ts';
import { atomicWrite, ioError, RunFolderError } from './run-folder-io.ts';

/** What actors.json tells of one actor; `version` is the weight version it works with, where it has one. */
export interface ActorRecord {
  name: string;
  kind: string;
  pid: number | undefined;
  incarnation: number;
  state: string;
  restarts: number;
  version?: number;
}

export interface ValidationScores {
  environment: string;
  /** Options that the environment was made with: scores compare only where these are equal. */
  options: Record<string, unknown>;
  temperature: number;
  tasks: { seed: number; rewards: number[] }[];
}

const FOLDERS = ['trajectories', 'checkpoints', 'transcripts'];
/** A run needs about this much; below it a run would only fail later. */
const MINIMUM_FREE_BYTES = 64 * 1024 * 1024;
/** Version numbers alone are no reason to rewrite actors.json more often than this. */
const ACTORS_INTERVAL_MS = 1000;

export class RunFolder {
  readonly path: string;
  #actorsShape = '';
  #actorsWritten = 0;
  #actorsPending: readonly ActorRecord[] | undefined;

  private constructor(path: string) {
    this.path = path;
  }

  /** Makes a new run folder: `output`, or runs/<utc>-<preset>. Refuses a folder that has content; leaves nothing behind when it fails. */
  static create(o: { config: TrainingConfig; preset: string; root?: string; now?: Date }): RunFolder {
    const path = resolve(o.config.output ?? unused(join(o.root ?? 'runs', `${stamp(o.now ?? new Date())}-${o.preset}`)));
    checkOutput(path);
    const created = firstMissing(path);
    try {
      for (const name of FOLDERS) mkdirSync(join(path, name), { recursive: true });
      atomicWrite(join(path, 'config.yaml'), configYaml(o.config, o.preset));
    } catch (error) {
      // Only what this call made is taken away again.
      if (created !== undefined) rmSync(created, { recursive: true, force: true });
      throw ioError(error, path);
    }
    return new RunFolder(path);
  }

  /** Opens the folder of an earlier run, given itself or one of its checkpoints. */
  static open(path: string): RunFolder {
    const full = resolve(path);
    const folder = basename(dirname(full)) === 'checkpoints' ? dirname(dirname(full)) : full;
    if (!existsSync(join(folder, 'config.yaml'))) {
      throw new RunFolderError('SINKFLEX_RESUME', `${path} is not a run folder (no config.yaml in ${folder}); give one of runs/`, { path });
    }
    for (const name of FOLDERS) mkdirSync(join(folder, name), { recursive: true });
    const opened = new RunFolder(folder);
    opened.sweep();
    return opened;
  }

  /** The settings an earlier run was made with, as a layer below new ones. */
  savedConfig(): ConfigLayer {
    const source = join(this.path, 'config.yaml');
    const refuse = (what: string, cause?: unknown): never => {
      throw new RunFolderError(
        'SINKFLEX_RESUME',
        `${source} is damaged: ${what}; put it right (sinkflex launch --dry-run shows a whole one), or start a new run`,
        { path: source },
        cause,
      );
    };
    let values: unknown;
    try {
      values = parse(readFileSync(source, 'utf8'));
    } catch (error) {
      return refuse(`it cannot be read as YAML (${(error as Error).message.split('\n')[0]})`, error);
    }
    if (!isGroup(values)) return refuse('it holds no settings');
    for (const { key } of settings()) {
      const names = key.split('.').slice(0, -1);
      let at: unknown = values;
      for (const [depth, name] of names.entries()) {
        at = isGroup(at) ? at[name] : undefined;
        if (at !== undefined && !isGroup(at)) refuse(`its section ${names.slice(0, depth + 1).join('.')} has no settings`);
      }
    }
    return { source, values };
  }

  file(...parts: string[]): string {
    return join(this.path, ...parts);
  }

  /** Folder of the checkpoint after `step`; the name sorts by step. */
  checkpoint(step: number): string {
    return this.file('checkpoints', checkpointName(step));
  }

  /** The store that the run records in: `store` of its settings where it begins, later the one that it began with. */
  async openTrajectories(store: string | null = null): Promise<TrajectoryStore> {
    const begun = this.#recordedIn();
    const place = begun ?? this.#newPlace(store);
    const wanted = this.#newPlace(store);
    if (place !== wanted)
      throw new RunFolderError(
        'SINKFLEX_RESUME',
        `the trajectories of this run are in ${place}, not in ${wanted}: leave trajectory.store as it was`,
        {
          path: this.path,
        },
      );
    const opened = await openTrajectoryStore(place);
    if (begun !== undefined) return opened;
    if ((await opened.consumedCount()) > 0 || (await opened.stepsOf('validation')).length > 0) {
      await opened.close();
      throw new RunFolderError('SINKFLEX_OUTPUT_EXISTS', `${place} has a run of that name: give this one another, as in ?run=another`, {
        place,
      });
    }
    if (store !== null) atomicWrite(this.#elsewhere(), `${place}\n`);
    return opened;
  }

  /** To read only, of a run that may be under way; undefined where nothing was recorded. */
  async readTrajectories(): Promise<TrajectoryStore | undefined> {
    const place = this.#recordedIn();
    return place === undefined ? undefined : openTrajectoryStore(place, { readonly: true });
  }

  #recordedIn(): string | undefined {
    if (existsSync(this.#elsewhere())) return readFileSync(this.#elsewhere(), 'utf8').trim();
    const file = this.#newPlace(null);
    return existsSync(file) ? file : undefined;
  }

  #newPlace(store: string | null): string {
    if (store === null) return this.file('trajectories', 'trajectories.db');
    const url = new URL(store);
    if (!url.searchParams.has('run')) url.searchParams.set('run', basename(this.path));
    return url.href;
  }

  /** Says where trajectories are that are not in the folder. */
  #elsewhere(): string {
    return this.file('trajectories', 'store.url');
  }

  /** Steps after which a validation left scores, ascending. */
  validationSteps(): number[] {
    return readdirSync(this.file('trajectories'))
      .flatMap((name) => /^validation-(\d+)\.scores\.json$/.exec(name)?.[1] ?? [])
      .map(Number)
      .sort((a, b) => a - b);
  }

  /** Steps that have a checkpoint, ascending (one is renamed into place only when it is whole). */
  checkpoints(): number[] {
    return checkpointSteps(this.file('checkpoints'));
  }

  /** The newest checkpoint that is as it was written. Later ones that are not are told, and with `setAside` renamed. */
  newestWhole(o: Parameters<typeof newestWhole>[1]): Promise<WholeCheckpoint | undefined> {
    return newestWhole(this.file('checkpoints'), o);
  }

  /** Renames checkpoints of later steps, which belong to a course that the run does not take; hands back their steps. */
  setAsideAfter(step: number): number[] {
    const later = this.checkpoints().filter((s) => s > step);
    for (const s of later) setAside(this.checkpoint(s), 'abandoned');
    return later;
  }

  /** Takes away what killed processes left half-written. */
  sweep(): void {
    sweepCheckpoints(this.file('checkpoints'));
  }

  /** Removes all but the newest `keep` checkpoints, and what a crash left half-written. */
  pruneCheckpoints(keep: number): void {
    const kept = new Set(
      this.checkpoints()
        .slice(-keep)
        .map((step) => basename(this.checkpoint(step))),
    );
    for (const name of readdirSync(this.file('checkpoints'))) {
      if (name.startsWith('step-') && !kept.has(name)) rmSync(this.file('checkpoints', name), { recursive: true, force: true });
    }
    this.sweep();
  }

  writeConfig(config: TrainingConfig, preset: string): void {
    atomicWrite(this.file('config.yaml'), configYaml(config, preset));
  }

  /** The scores of every task of one validation: what two runs are compared by. */
  writeScores(step: number, scores: ValidationScores): void {
    atomicWrite(this.#scores(step), `${JSON.stringify(scores)}\n`);
  }

  /** Of the validation after `step`; undefined where there was none. */
  readScores(step: number): ValidationScores | undefined {
    const path = this.#scores(step);
    return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as ValidationScores) : undefined;
  }

  #scores(step: number): string {
    return this.file('trajectories', `validation-${String(step).padStart(10, '0')}.scores.json`);
  }

  writeCurve(svg: string): void {
    atomicWrite(this.file('curve.svg'), svg);
  }

  writeTranscript(kind: 'failed' | 'solved', text: string): void {
    atomicWrite(this.file('transcripts', `${kind}.txt`), text);
  }

  writeJson(name: 'ledger.json' | 'result.json' | 'faults.json', value: unknown): void {
    atomicWrite(this.file(name), `${JSON.stringify(value, null, 2)}\n`);
  }

  /** Rewrites actors.json at once when an actor came, went or restarted; new versions alone at most once a second (`flushActors` writes the rest). */
  writeActors(actors: readonly ActorRecord[]): void {
    const shape = JSON.stringify(actors.map(({ version: _, ...rest }) => rest));
    this.#actorsPending = actors;
    if (shape !== this.#actorsShape || Date.now() - this.#actorsWritten >= ACTORS_INTERVAL_MS) this.flushActors();
    this.#actorsShape = shape;
  }

  flushActors(): void {
    if (!this.#actorsPending) return;
    atomicWrite(this.file('actors.json'), `${JSON.stringify(this.#actorsPending, null, 2)}\n`);
    this.#actorsPending = undefined;
    this.#actorsWritten = Date.now();
  }
}

/** Throws unless a run may be written to `path`: new or empty, writable as far as can be told, on a disk with room. Writes nothing. `resume`: how the caller's own command goes on with what is there. */
export function checkOutput(path: string, resume = `--resume ${path}`): void {
  const full = resolve(path);
  let existing = full;
  while (!existsSync(existing)) existing = dirname(existing);
  try {
    if (!statSync(existing).isDirectory()) throw Object.assign(new Error('not a directory'), { code: 'ENOTDIR' });
    if (existing === full && readdirSync(full).length > 0) {
      throw new RunFolderError(
        'SINKFLEX_OUTPUT_EXISTS',
        `${path} already has content; choose another folder with --output, or continue that run with ${resume}`,
        { path },
      );
    }
    const disk = statfsSync(existing);
    const free = disk.bavail * disk.bsize;
    if (free < MINIMUM_FREE_BYTES) {
      const mib = (bytes: number) => `${Math.floor(bytes / 1024 / 1024)} MiB`;
      throw new RunFolderError(
        'SINKFLEX_DISK_FULL',
        `only ${mib(free)} are free where ${path} would be (a run needs ${mib(MINIMUM_FREE_BYTES)}); free some, or choose another disk with --output`,
        { path, free },
      );
    }
  } catch (error) {
    throw ioError(error, path);
  }
}

const isGroup = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

function firstMissing(path: string): string | undefined {
  let missing: string | undefined;
  for (let at = path; !existsSync(at); at = dirname(at)) missing = at;
  return missing;
}

/** A path that does not exist yet: two runs may start within one second. */
function unused(path: string): string {
  let candidate = path;
  for (let n = 2; existsSync(candidate); n++) candidate = `${path}-${n}`;
  return candidate;
}

/** 20260131T090503Z */
const stamp = (now: Date): string => `${now.toISOString().replace(/[-:]/g, '').slice(0, 15)}Z`;

function configYaml(config: TrainingConfig, preset: string): string {
  const changed = settings().filter(
    (s) =>
      JSON.stringify(s.default) !==
      JSON.stringify(s.key.split('.').reduce<unknown>((at, name) => (at as Record<string, unknown>)[name], config)),
  );
  const note = changed.length === 0 ? 'all as by default' : `not the default: ${changed.map((s) => s.key).join(', ')}`;
  return `# Settings of this run (preset ${preset}); ${note}\n${stringify(config)}`;
}

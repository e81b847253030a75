/** Stored trajectories as files for other tools: JSON lines (exact, readable again) or Parquet (one row a trajectory, for analysis). */
import { createReadStream, createWriteStream, renameSync, rmSync } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import type { SchemaElement } from 'hyparquet-writer';
import { fromRecord, type TrajectoryRecord } from './record.ts';
import { storeFailure } from './store.ts';

export type ExportFormat = 'jsonl' | 'parquet';
export const exportFormats: readonly ExportFormat[] = ['jsonl', 'parquet'];

/** Writes the file beside its place and renames it: whole or not there. Hands back how many trajectories it holds. */
export async function exportTrajectories(records: AsyncIterable<TrajectoryRecord>, path: string, format: ExportFormat): Promise<number> {
  const temporary = `${path}.tmp-${process.pid}`;
  try {
    const count = format === 'jsonl' ? await writeLines(records, temporary) : await writeParquet(records, temporary);
    renameSync(temporary, path);
    return count;
  } catch (e) {
    rmSync(temporary, { force: true });
    throw storeFailure(path, 'export', e);
  }
}

async function writeLines(records: AsyncIterable<TrajectoryRecord>, path: string): Promise<number> {
  let count = 0;
  async function* lines(): AsyncGenerator<string> {
    for await (const r of records) {
      count++;
      yield `${JSON.stringify(r)}\n`;
    }
  }
  await pipeline(lines, createWriteStream(path));
  return count;
}

/** Reads an export line by line. Lines end with \n only: text may hold any other separator. A torn last line is left out. */
export async function* readTrajectories(path: string): AsyncGenerator<TrajectoryRecord> {
  let rest = '';
  for await (const chunk of createReadStream(path, { encoding: 'utf8' })) {
    const lines = (rest + chunk).split('\n');
    rest = lines.pop()!;
    for (const line of lines) {
      const r = JSON.parse(line) as TrajectoryRecord;
      // JSON has no NaN.
      yield r.reward === null ? { ...r, reward: Number.NaN } : r;
    }
  }
}

const ROW_GROUP = 1000;

async function writeParquet(records: AsyncIterable<TrajectoryRecord>, path: string): Promise<number> {
  // Few programs export: nobody else waits for this library.
  const { fileWriter, parquetWriteRows } = await import('hyparquet-writer');
  let count = 0;
  async function* rows(): AsyncGenerator<Record<string, unknown>> {
    for await (const r of records) {
      count++;
      yield parquetRow(r);
    }
  }
  await parquetWriteRows({
    writer: fileWriter(path),
    rows: rows(),
    columns: COLUMNS.map(({ name }) => ({ name })),
    schema: SCHEMA,
    rowGroupSize: ROW_GROUP,
    createdBy: 'sinkflex',
  });
  return count;
}

type Kind = 'int' | 'double' | 'text' | 'ints' | 'floats';
/** Lists have one entry a token. */
const COLUMNS: { name: string; kind: Kind; optional?: boolean }[] = [
  { name: 'step', kind: 'int' },
  { name: 'phase', kind: 'text' },
  { name: 'task', kind: 'int' },
  { name: 'sample', kind: 'int' },
  { name: 'group', kind: 'text' },
  { name: 'seed', kind: 'double' },
  { name: 'reward', kind: 'double' },
  { name: 'advantage', kind: 'double', optional: true },
  { name: 'reward_parts', kind: 'text' },
  { name: 'diagnostics', kind: 'text', optional: true },
  { name: 'stop_reason', kind: 'text' },
  { name: 'filtered', kind: 'text', optional: true },
  { name: 'turns', kind: 'int' },
  { name: 'tool_calls', kind: 'int' },
  { name: 'malformed', kind: 'int' },
  { name: 'redone', kind: 'int' },
  { name: 'lineage', kind: 'int' },
  { name: 'seconds', kind: 'double' },
  { name: 'seconds_generate', kind: 'double' },
  { name: 'seconds_environment', kind: 'double' },
  { name: 'text', kind: 'text' },
  { name: 'ids', kind: 'ints' },
  { name: 'forks', kind: 'ints' },
  { name: 'mask', kind: 'ints' },
  { name: 'versions', kind: 'ints' },
  { name: 'logprobs', kind: 'floats' },
];

const SCALARS = {
  int: { type: 'INT32' },
  double: { type: 'DOUBLE' },
  text: { type: 'BYTE_ARRAY', converted_type: 'UTF8' },
} as const;

const SCHEMA: SchemaElement[] = [
  { name: 'trajectory', num_children: COLUMNS.length },
  ...COLUMNS.flatMap(({ name, kind, optional }): SchemaElement[] => {
    if (kind !== 'ints' && kind !== 'floats')
      return [{ name, repetition_type: optional ? 'OPTIONAL' : 'REQUIRED', ...SCALARS[kind] } as SchemaElement];
    return [
      { name, repetition_type: 'REQUIRED', num_children: 1, converted_type: 'LIST' },
      { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
      { name: 'element', repetition_type: 'REQUIRED', type: kind === 'ints' ? 'INT32' : 'FLOAT' },
    ] as SchemaElement[];
  }),
];

function parquetRow(r: TrajectoryRecord): Record<string, unknown> {
  const t = fromRecord(r);
  return {
    step: r.step,
    phase: r.phase,
    task: r.task,
    sample: r.sample,
    group: r.group,
    seed: r.seed,
    reward: r.reward,
    advantage: r.advantage,
    reward_parts: JSON.stringify(r.reward_parts),
    diagnostics: r.diagnostics && JSON.stringify(r.diagnostics),
    stop_reason: r.stop_reason,
    filtered: r.filtered,
    turns: r.turns,
    tool_calls: r.tool_calls,
    malformed: r.malformed,
    redone: r.redone,
    lineage: r.lineage,
    seconds: r.seconds.total,
    seconds_generate: r.seconds.generate,
    seconds_environment: r.seconds.environment,
    text: r.text,
    ids: [...t.ids],
    forks: r.forks ?? [],
    mask: [...t.mask],
    versions: [...t.versions],
    logprobs: [...t.logprobs],
  };
}

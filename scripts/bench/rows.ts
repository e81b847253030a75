// What a benchmark reports: one row, ours against a peer in the same run, and how rows are printed.
import { table, thousands } from '../text.ts';

export interface Row {
  suite: string;
  /** Dotted id, stable over time. */
  row: string;
  unit: string;
  ours: number;
  peer?: number;
  /** How much better ours is: above 1 is better, whatever the unit. */
  ratio?: number;
  /** Further figures and the sizes that were measured. */
  details?: Record<string, number | string>;
}

export interface Skip {
  suite: string;
  row: string;
  skipped: string;
}

export interface SuiteContext {
  /** Run the rivals too. */
  peers: boolean;
  /** Fewer repetitions: for a look, not for a figure. */
  quick: boolean;
  report(row: Row | Skip): void;
  /** What is going on, for people. */
  note(text: string): void;
}

export type Suite = Record<string, (context: SuiteContext) => Promise<void>>;

export function ratioOf(ours: number, peer: number, better: 'higher' | 'lower'): number {
  return better === 'higher' ? ours / peer : peer / ours;
}

export function printRows(rows: readonly (Row | Skip)[]): string {
  const cells = rows.map((r) =>
    'skipped' in r
      ? [r.row, 'skipped', '', '', r.skipped]
      : [r.row, figure(r.ours), r.peer === undefined ? '' : figure(r.peer), r.ratio === undefined ? '' : `${r.ratio.toFixed(2)}x`, r.unit],
  );
  return table([['row', 'ours', 'peer', 'ratio', 'unit'], ...cells], { header: true });
}

const figure = (v: number): string => (Math.abs(v) >= 1000 ? thousands(v) : String(Number(v.toPrecision(4))));

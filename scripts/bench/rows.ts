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
  /** What the row must reach, and whether it did: `>= 20x` of the ratio, or `<= 100 us` of ours. */
  bar?: string;
  pass?: boolean;
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
  /** Called after the last row of the run, whatever happened: rivals that are kept for several rows end here. */
  atEnd(close: () => Promise<void>): void;
}

export type Suite = Record<string, (context: SuiteContext) => Promise<void>>;

/** The row with its bar: at least so many times better than the peer (only where there is one), or at most / at least so much of its unit. */
export function judged(row: Row, bar: { ratio?: number; most?: number; least?: number }): Row {
  if (bar.ratio !== undefined) {
    const named = { ...row, bar: `>= ${bar.ratio}x` };
    return row.ratio === undefined ? named : { ...named, pass: row.ratio >= bar.ratio };
  }
  if (bar.most !== undefined) return { ...row, bar: `<= ${bar.most} ${row.unit}`, pass: row.ours <= bar.most };
  if (bar.least !== undefined) return { ...row, bar: `>= ${bar.least} ${row.unit}`, pass: row.ours >= bar.least };
  return row;
}

export function ratioOf(ours: number, peer: number, better: 'higher' | 'lower'): number {
  return better === 'higher' ? ours / peer : peer / ours;
}

export function printRows(rows: readonly (Row | Skip)[]): string {
  const bars = rows.some((r) => 'bar' in r && r.bar !== undefined);
  const cells = rows.map((r) => {
    if ('skipped' in r) return [r.row, 'skipped', '', '', r.skipped];
    const cell = [
      r.row,
      figure(r.ours),
      r.peer === undefined ? '' : figure(r.peer),
      r.ratio === undefined ? '' : `${r.ratio.toFixed(2)}x`,
      r.unit,
    ];
    return bars ? [...cell, r.bar ?? '', r.pass === undefined ? '' : r.pass ? 'ok' : 'BELOW'] : cell;
  });
  return table([['row', 'ours', 'peer', 'ratio', 'unit', ...(bars ? ['bar', ''] : [])], ...cells], { header: true });
}

const figure = (v: number): string => (Math.abs(v) >= 1000 ? thousands(v) : String(Number(v.toPrecision(4))));

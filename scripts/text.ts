// Numbers, durations and tables as the command line prints them.
import type { Interval } from '../actors/index.ts';

export const thousands = (value: number): string => Math.round(value).toLocaleString('en-US');

/** 4.2 s, 1 min 05 s */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return '-';
  if (seconds < 60) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  const whole = Math.round(seconds);
  return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, '0')} s`;
}

/** 0.780 [0.737, 0.818] */
export const interval = (i: Interval | null): string =>
  i === null ? '-' : `${i.mean.toFixed(3)} [${i.low.toFixed(3)}, ${i.high.toFixed(3)}]`;

/** Columns padded to their widest cell; the first is text, the others align right where they look like numbers. */
export function table(rows: readonly (readonly string[])[], o: { header?: boolean; indent?: string } = {}): string {
  const columns = Math.max(0, ...rows.map((r) => r.length));
  const widths = Array.from({ length: columns }, (_, c) => Math.max(...rows.map((r) => (r[c] ?? '').length)));
  const line = (row: readonly string[]) =>
    (o.indent ?? '') +
    widths
      .map((w, c) => (c > 0 && /^-?[\d.,]+x?$/.test(row[c] ?? '') ? (row[c] ?? '').padStart(w) : (row[c] ?? '').padEnd(w)))
      .join('  ')
      .trimEnd();
  const lines = rows.map(line);
  if (o.header) lines.splice(1, 0, (o.indent ?? '') + widths.map((w) => '-'.repeat(w)).join('  '));
  return lines.join('\n');
}

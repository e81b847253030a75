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

/** 12 ms, 4.2 s, 1 min 05 s, 3 h 07 min, 2 d 04 h */
export function age(ms: number): string {
  if (!Number.isFinite(ms)) return '-';
  if (ms < 1000) return `${ms < 10 ? Number(ms.toFixed(1)) : Math.round(ms)} ms`;
  if (ms < 3_600_000 - 500) return duration(ms / 1000);
  const minutes = Math.round(ms / 60_000);
  const [large, small, units] =
    minutes < 1440 ? [minutes / 60, minutes % 60, ['h', 'min']] : [minutes / 1440, (minutes / 60) % 24, ['d', 'h']];
  return `${Math.floor(large)} ${units[0]} ${String(Math.floor(small)).padStart(2, '0')} ${units[1]}`;
}

/** 900 B, 12.3 MiB */
export function bytes(value: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  let rest = value;
  for (; rest >= 1000 && unit < units.length - 1; unit++) rest /= 1024;
  return `${unit === 0 ? rest : rest.toFixed(rest < 99.95 ? 1 : 0)} ${units[unit]}`;
}

export interface TableOptions {
  header?: boolean;
  indent?: string;
  /** Numbers of columns that align right whatever they look like. */
  right?: readonly number[];
  /** Colours a padded cell. */
  paint?: (padded: string, text: string) => string;
}

/** Columns padded to their widest cell; the first is text, the others align right where they look like numbers. */
export function table(rows: readonly (readonly string[])[], o: TableOptions = {}): string {
  const columns = Math.max(0, ...rows.map((r) => r.length));
  const widths = Array.from({ length: columns }, (_, c) => rows.reduce((widest, r) => Math.max(widest, (r[c] ?? '').length), 0));
  const paint = o.paint ?? ((padded: string) => padded);
  const line = (row: readonly string[]) =>
    (o.indent ?? '') +
    widths
      .map((w, c) => {
        const text = row[c] ?? '';
        const right = o.right?.includes(c) || (c > 0 && /^-?[\d.,]+x?$/.test(text));
        return paint(right ? text.padStart(w) : text.padEnd(w), text);
      })
      .join('  ')
      .trimEnd();
  const lines = rows.map(line);
  if (o.header) lines.splice(1, 0, (o.indent ?? '') + widths.map((w) => '-'.repeat(w)).join('  '));
  return lines.join('\n');
}

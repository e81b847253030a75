// How rows of the suite `engine` are measured: turns of ours and of every rival alternate in one run, the figure of each is its median.
// One row is reported for each rival.
import { median } from '../../../actors/index.ts';
import type { Peer } from '../kept-peer.ts';
import { judged, ratioOf, type SuiteContext } from '../rows.ts';
import { type PeerName, peerNamed } from './peers.ts';
import { THREADS } from './shapes.ts';

export const SUITE = 'engine';

export interface Rival {
  /** The row is `<row>.<label>`. */
  label: string;
  peer: PeerName;
  /** Seconds of one turn. */
  turn: (peer: Peer) => Promise<number>;
  /** At least so many times better. */
  bar?: number;
}

export interface Comparison {
  row: string;
  /** Seconds of one turn. */
  ours: () => Promise<number>;
  rivals: readonly Rival[];
  turns: number;
  /** A rate: units a second from units a turn. Absent: the figure is milliseconds a turn. */
  rate?: { unit: string; perTurn: number };
  /** Turns before those that count; default 1. */
  warm?: number;
  details?: () => Record<string, number | string>;
}

export async function compare(context: SuiteContext, c: Comparison): Promise<void> {
  const sides: { rival: Rival; peer: Peer; seconds: number[]; failed?: string }[] = [];
  for (const rival of c.rivals) {
    const found = await peerNamed(rival.peer, context);
    if (typeof found === 'object') sides.push({ rival, peer: found, seconds: [] });
    else if (typeof found === 'string') context.report({ suite: SUITE, row: `${c.row}.${rival.label}`, skipped: `peer: ${found}` });
  }
  const ours: number[] = [];
  const warm = c.warm ?? 1;
  for (let turn = -warm; turn < (context.quick ? Math.min(2, c.turns) : c.turns); turn++) {
    const own = await c.ours();
    if (turn >= 0) ours.push(own);
    for (const side of sides) {
      if (side.failed !== undefined) continue;
      try {
        const seconds = await side.rival.turn(side.peer);
        if (turn >= 0) side.seconds.push(seconds);
      } catch (error) {
        side.failed = (error as Error).message;
      }
    }
  }
  const figure = (seconds: number): number => round(c.rate ? c.rate.perTurn / seconds : seconds * 1000);
  const own = {
    suite: SUITE,
    unit: c.rate?.unit ?? 'ms',
    ours: figure(median(ours)),
    details: { threads: THREADS, turns: ours.length, best: figure(Math.min(...ours)), ...c.details?.() },
  };
  if (sides.length === 0) context.report({ ...own, row: c.row });
  for (const { rival, seconds, failed } of sides) {
    const row = `${c.row}.${rival.label}`;
    if (failed !== undefined || seconds.length === 0) {
      context.report({ suite: SUITE, row, skipped: `peer: ${failed ?? 'no turn'}` });
      continue;
    }
    const details = { ...own.details, peer: rival.label, peer_best: figure(Math.min(...seconds)) };
    const compared = {
      ...own,
      row,
      peer: figure(median(seconds)),
      ratio: round(ratioOf(median(ours), median(seconds), 'lower')),
      details,
    };
    context.report(judged(compared, rival.bar === undefined ? {} : { ratio: rival.bar }));
  }
}

export async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1000;
}

export const round = (v: number): number => Number(v.toPrecision(5));

export { median };

// What a head or an agent does to itself or to its workers when it is told to: faults on order. Only this process and its own workers are ever
// signalled; what holds a process up for a while is undone by a helper process, also when this one is the one that is stopped.
import { spawn } from 'node:child_process';
import { closeSync, mkdtempSync, openSync, rmSync, statfsSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { RuntimeFailure } from '../api/errors.ts';
import { type Done, emulate, type LinkRules, messagesDone } from '../links/emulation.ts';

export type FaultOrder =
  /** To the worker of that actor; absent: to this process itself. `share`: of the time that a slow one runs. */
  | { do: 'kill'; actor?: number }
  | { do: 'stop'; actor?: number; forMs: number }
  | { do: 'slow'; actor?: number; forMs: number; share: number }
  /** `peer`: the node at the other end, or every one. */
  | { do: 'links'; rules: LinkRules; peer?: string; seed: number; forMs: number }
  | { do: 'fill'; folder: string; mostBytes: number; forMs: number }
  /** What was done to messages so far. */
  | { do: 'count' };

/** Of a process that is slowed down, milliseconds. */
const PERIOD_MS = 100;
const BLOCK = 1024 * 1024;
/** For the answer to leave before this process is gone, or cannot be heard. */
const BEFORE_MS = 200;

export function perform(order: FaultOrder, pidOf: (actor: number) => number | undefined): Done | undefined {
  switch (order.do) {
    case 'kill':
      signal(targetOf(order.actor, pidOf), 'kill -KILL $P');
      return undefined;
    case 'stop':
      signal(targetOf(order.actor, pidOf), `kill -STOP $P; sleep ${order.forMs / 1000}; kill -CONT $P`);
      return undefined;
    case 'slow': {
      const runs = (PERIOD_MS * order.share) / 1000;
      const round = `kill -STOP $P || exit; sleep ${PERIOD_MS / 1000 - runs}; kill -CONT $P; sleep ${runs}`;
      signal(targetOf(order.actor, pidOf), `i=0; while [ $i -lt ${Math.ceil(order.forMs / PERIOD_MS)} ]; do ${round}; i=$((i+1)); done`);
      return undefined;
    }
    case 'links':
      setTimeout(() => emulate({ rules: order.rules, seed: order.seed, forMs: order.forMs }), BEFORE_MS);
      return undefined;
    case 'fill':
      fill(order.folder, order.mostBytes, order.forMs);
      return undefined;
    case 'count':
      return messagesDone();
  }
}

function targetOf(actor: number | undefined, pidOf: (actor: number) => number | undefined): { pid: number; afterMs: number } {
  if (actor === undefined) return { pid: process.pid, afterMs: BEFORE_MS };
  const pid = pidOf(actor);
  if (pid === undefined || pid === process.pid)
    throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `actor ${actor} has no process of its own here, so nothing can be done to it alone`);
  return { pid, afterMs: 0 };
}

function signal({ pid, afterMs }: { pid: number; afterMs: number }, script: string): void {
  const helper = spawn('/bin/sh', ['-c', `sleep ${afterMs / 1000}; ${script.replaceAll('$P', String(pid))}`], {
    detached: true,
    stdio: 'ignore',
    env: { PATH: '/usr/bin:/bin' },
  });
  helper.on('error', (error) => process.stderr.write(`[sinkflex] a fault could not be injected: ${error.message}\n`));
  helper.unref();
}

/** Until nothing more goes there, and back. */
function fill(folder: string, mostBytes: number, forMs: number): void {
  const { bavail, bsize } = statfsSync(folder);
  if (bavail * bsize > mostBytes)
    throw new RuntimeFailure(
      'SINKFLEX_BAD_OPTION',
      `${folder} has ${bavail * bsize} bytes free, more than may be filled (${mostBytes}): give it a small file system of its own`,
    );
  const own = mkdtempSync(join(folder, '.fault-'));
  const remove = (): void => rmSync(own, { recursive: true, force: true });
  const file = openSync(join(own, 'full'), 'wx', 0o600);
  try {
    for (let size = BLOCK; size >= 1; ) {
      try {
        writeSync(file, Buffer.alloc(size));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
        size = Math.floor(size / 16);
      }
    }
  } finally {
    closeSync(file);
  }
  process.once('exit', remove);
  setTimeout(() => {
    process.off('exit', remove);
    remove();
  }, forMs).unref();
}

// Opens and closes the observatory of a run: event log, logs, the observers' socket with its token, and the metrics listener if wanted.
import { randomBytes } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { RuntimeFailure } from '../api/errors.ts';
import { findMetricsToken } from '../links/index.ts';
import { type Listener, socketPath } from '../wire/index.ts';
import type { EventLog } from './events.ts';
import type { MetricsListener } from './http.ts';
import type { LogFolder } from './logs.ts';
import type { Observable } from './observable.ts';
import { Observatory } from './observatory.ts';
import { TOKEN_FILE } from './protocol.ts';
import { ABOUT_FILE, aboutThisRun } from './runs.ts';
import { serveObservers } from './server.ts';

export interface OpenOptions {
  folder: string;
  source: Observable;
  events: EventLog;
  logs: LogFolder;
  /** Port of the metrics listener on loopback, 0: any free one; undefined: none. */
  metricsPort: number | undefined;
  /** File with what its readers show; default SINKFLEX_METRICS_TOKEN_FILE, or else the observers' token. */
  metricsTokenFile?: string | undefined;
}

export interface OpenObservatory {
  readonly observatory: Observatory;
  /** Where the metrics listener listens. */
  readonly metricsPort: number | undefined;
  close(): void;
}

export async function openObservatory(options: OpenOptions): Promise<OpenObservatory> {
  const { folder, metricsPort } = options;
  const observatory = new Observatory(options);
  const token = randomBytes(32);
  let ready = true;
  let listener: Listener | undefined;
  let metrics: MetricsListener | undefined;
  const close = (): void => {
    ready = false;
    listener?.close();
    metrics?.close();
    options.logs.close();
    for (const file of [socketPath(folder, 'observe'), join(folder, TOKEN_FILE), join(folder, ABOUT_FILE)]) rmSync(file, { force: true });
  };
  // A head that comes back after it was killed finds what it left.
  rmSync(socketPath(folder, 'observe'), { force: true });
  try {
    listener = await serveObservers(folder, token, observatory);
    if (metricsPort !== undefined) {
      const shown = findMetricsToken(options.metricsTokenFile) ?? token.toString('hex');
      metrics = await (await import('./http.ts')).serveMetrics(metricsPort, shown, observatory, () => ready);
    }
  } catch (error) {
    close();
    if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE')
      throw new RuntimeFailure('SINKFLEX_BAD_OPTION', `metricsPort ${metricsPort} is taken by another program`, { cause: error });
    throw error;
  }
  for (const file of [TOKEN_FILE, ABOUT_FILE]) rmSync(join(folder, file), { force: true });
  writeFileSync(join(folder, TOKEN_FILE), `${token.toString('hex')}\n`, { mode: 0o600, flag: 'wx' });
  // Last: from here on commands find the run.
  writeFileSync(join(folder, ABOUT_FILE), `${JSON.stringify(aboutThisRun())}\n`, { mode: 0o600, flag: 'wx' });
  return { observatory, metricsPort: metrics?.port, close };
}

/** One file from a server: what it is, and its bytes, gone on with after whatever interrupts them. */
import { existsSync, statSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { ActorsError } from '../../errors.ts';

export interface Source {
  url: string;
  token: string | undefined;
}

export interface TransferOptions {
  /** Attempts in a row that bring nothing before it gives up. Default 5. */
  retries?: number;
  /** A connection that brings nothing for so long is given up. Default 30 s. */
  stallMs?: number;
  /** Pause before attempt n + 1 of those that brought nothing. Default doubles from 0.5 s. */
  pause?: (attempt: number) => Promise<void>;
  signal?: AbortSignal;
}

/** What is told of a file before its bytes. */
export interface FileInfo {
  etag: string;
  size: number;
  commit: string | undefined;
}

const REDIRECTS = new Set([301, 302, 303, 307, 308]);

/** Follows redirects; the token goes to the origin that it was meant for, and to no other. */
async function request(
  source: Source,
  init: { method: string; headers?: Record<string, string>; signal: AbortSignal },
  follow: 'all' | 'own',
) {
  let url = new URL(source.url);
  const { origin } = url;
  for (let hop = 0; hop < 8; hop++) {
    const headers = {
      ...init.headers,
      ...(source.token !== undefined && url.origin === origin ? { authorization: `Bearer ${source.token}` } : {}),
    };
    const response = await fetch(url, { ...init, headers, redirect: 'manual' });
    const location = response.headers.get('location');
    if (!REDIRECTS.has(response.status) || location === null) return response;
    const next = new URL(location, url);
    // Large files are redirected to their storage, and the first answer says what they are.
    if (follow === 'own' && next.origin !== origin) return response;
    await response.body?.cancel();
    url = next;
  }
  throw new ActorsError('SINKFLEX_HUB_UNREACHABLE', `${source.url} redirects without end`);
}

/** A refusal is final; what may pass is undefined. */
function refusal(status: number, url: string): ActorsError | undefined {
  if (status === 401 || status === 403)
    return new ActorsError(
      'SINKFLEX_HUB_REFUSED',
      `${url} is not for this caller (HTTP ${status}): set HF_TOKEN, and accept the model's terms if it has any`,
      {
        details: { url, status },
      },
    );
  if (status === 404 || status === 410) return new ActorsError('SINKFLEX_HUB_MISSING', `there is no ${url}`, { details: { url, status } });
  if (status >= 400 && status < 500 && status !== 408 && status !== 416 && status !== 429)
    return new ActorsError('SINKFLEX_HUB_REFUSED', `${url} was refused with HTTP ${status}`, { details: { url, status } });
  return undefined;
}

/** Runs `attempt` until it is done; it answers whether it brought anything, and throws what is final as an ActorsError. */
async function persist(
  url: string,
  o: TransferOptions,
  attempt: (signal: AbortSignal, alive: () => void) => Promise<'done' | 'some' | 'nothing'>,
) {
  const { retries = 5, stallMs = 30_000, pause = (n) => new Promise((resolve) => setTimeout(resolve, 500 * 2 ** n)) } = o;
  let last: unknown;
  for (let failed = 0; failed < retries; ) {
    const stalled = new AbortController();
    const timer = setTimeout(() => stalled.abort(new Error(`nothing came for ${stallMs / 1000} s`)), stallMs);
    let brought = false;
    try {
      const signal = o.signal === undefined ? stalled.signal : AbortSignal.any([o.signal, stalled.signal]);
      const outcome = await attempt(signal, () => {
        brought = true;
        timer.refresh();
      });
      if (outcome === 'done') return;
      last = new Error('it ended early');
    } catch (error) {
      if (o.signal?.aborted)
        throw new ActorsError('SINKFLEX_ABORTED', `the download of ${url} was stopped; it goes on from here next time`);
      if (error instanceof ActorsError) throw error;
      last = stalled.signal.aborted ? stalled.signal.reason : error;
    } finally {
      clearTimeout(timer);
    }
    failed = brought ? 0 : failed + 1;
    if (failed > 0 && failed < retries) await pause(failed - 1);
  }
  const why = last instanceof Error ? ((last.cause as Error | undefined)?.message ?? last.message) : String(last);
  throw new ActorsError('SINKFLEX_HUB_UNREACHABLE', `${url}: ${why} (${retries} attempts)`, { cause: last, details: { url } });
}

export async function fetchJson(source: Source, o: TransferOptions): Promise<unknown> {
  let json: unknown;
  await persist(source.url, o, async (signal) => {
    const response = await request(source, { method: 'GET', signal }, 'all');
    const final = refusal(response.status, source.url);
    if (final) throw final;
    if (!response.ok) throw new Error(`HTTP ${response.status}`);
    json = await response.json();
    return 'done';
  });
  return json;
}

export async function describe(source: Source, o: TransferOptions): Promise<FileInfo> {
  let info: FileInfo | undefined;
  await persist(source.url, o, async (signal) => {
    // Not compressed: the size is that of the file.
    const response = await request(source, { method: 'HEAD', headers: { 'accept-encoding': 'identity' }, signal }, 'own');
    const final = refusal(response.status, source.url);
    if (final) throw final;
    if (response.status >= 400) throw new Error(`HTTP ${response.status}`);
    const { headers } = response;
    const etag = (headers.get('x-linked-etag') ?? headers.get('etag') ?? '').replace(/^W\//, '').replaceAll('"', '');
    const size = Number(headers.get('x-linked-size') ?? headers.get('content-length') ?? Number.NaN);
    if (!/^[\w.-]{1,128}$/.test(etag) || !Number.isSafeInteger(size))
      throw new ActorsError('SINKFLEX_HUB_UNREACHABLE', `${source.url}: the server names no usable ETag and size, as Hugging Face's do`);
    info = { etag, size, commit: headers.get('x-repo-commit') ?? undefined };
    return 'done';
  });
  return info!;
}

/** Writes the file to `path`, from where an earlier attempt ended. `onBytes` hears how many there are now. */
export async function download(
  source: Source,
  path: string,
  size: number,
  o: TransferOptions & { onBytes?: (bytes: number) => void },
): Promise<void> {
  await persist(source.url, o, async (signal, alive) => {
    let from = existsSync(path) ? statSync(path).size : 0;
    if (from === size && existsSync(path)) return 'done';
    if (from > size) from = 0;
    const response = await request(
      source,
      { method: 'GET', headers: { 'accept-encoding': 'identity', ...(from > 0 ? { range: `bytes=${from}-` } : {}) }, signal },
      'all',
    );
    const final = refusal(response.status, source.url);
    if (final) throw final;
    if (!response.ok || response.body === null) throw new Error(`HTTP ${response.status}`);
    // A server without ranges begins anew, and so does whoever tells of another place.
    if (from > 0 && (response.status !== 206 || !response.headers.get('content-range')?.startsWith(`bytes ${from}-`))) {
      if (response.status === 206) throw new Error('the server sent another part of the file than was asked for');
      from = 0;
    }
    let bytes = from;
    // Every write is awaited, so that what is on the disk when a connection ends is what the next one goes on from.
    const file = await open(path, from > 0 ? 'a' : 'w');
    try {
      for await (const chunk of response.body) {
        bytes += chunk.length;
        if (bytes > size) throw new ActorsError('SINKFLEX_HUB_CORRUPT', `${source.url} brings more than its ${size} bytes`);
        await file.writeFile(chunk);
        alive();
        o.onBytes?.(bytes);
      }
      await file.sync();
    } finally {
      await file.close();
    }
    return bytes === size ? 'done' : 'some';
  });
}

/**
 * A bucket of an S3-compatible store: the few requests that an archive needs, signed (signature version 4, by aws4fetch), each with a
 * deadline, tried again where that may help. Bodies are at most one part, so that memory stays bounded whatever a file's size.
 */
import { createHash } from 'node:crypto';
import { setTimeout as after } from 'node:timers/promises';
import { AwsClient } from 'aws4fetch';
import { ActorsError } from '../errors.ts';

export interface S3Options {
  bucket: string;
  /** Such as http://127.0.0.1:9000, with the bucket in the path; without it that of Amazon for the region. */
  endpoint?: string | undefined;
  region: string;
  accessKeyId: string;
  secretAccessKey: string;
  sessionToken?: string | undefined;
  /** Of one request, milliseconds. */
  timeoutMs?: number;
  /** Tries after the first. */
  retries?: number;
  /** Before the first retry, milliseconds; doubled each time, and half of it drawn at random. */
  backoffMs?: number;
  random?: () => number;
}

export interface StoredObject {
  key: string;
  bytes: number;
}

interface Request {
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: Uint8Array;
  /** 404 is an answer, not a failure. */
  mayBeAbsent?: boolean;
}

/** The name under which an object tells the checksum of its content. */
const CHECKSUM = 'x-amz-meta-sha256';

export class S3 {
  readonly #o: Required<Pick<S3Options, 'timeoutMs' | 'retries' | 'backoffMs' | 'random'>>;
  readonly #base: string;
  readonly #client: AwsClient;
  readonly #signal: AbortSignal | undefined;

  /** `signal` ends whatever is under way. */
  constructor(o: S3Options, signal?: AbortSignal) {
    this.#o = {
      timeoutMs: o.timeoutMs ?? 120_000,
      retries: o.retries ?? 5,
      backoffMs: o.backoffMs ?? 200,
      random: o.random ?? Math.random,
    };
    this.#base = o.endpoint ? `${o.endpoint.replace(/\/+$/, '')}/${o.bucket}` : `https://${o.bucket}.s3.${o.region}.amazonaws.com`;
    const { accessKeyId, secretAccessKey, sessionToken, region } = o;
    this.#client = new AwsClient({ accessKeyId, secretAccessKey, region, service: 's3', ...(sessionToken ? { sessionToken } : {}) });
    this.#signal = signal;
  }

  /**
   * Credentials, region and endpoint from the environment, by the names that every S3 tool reads; from nowhere else, so that they are in no
   * settings, no run folder and no log. SINKFLEX_ARCHIVE names those that are missing.
   */
  static fromEnvironment(bucket: string, o: { signal?: AbortSignal; env?: NodeJS.ProcessEnv } = {}): S3 {
    const env = o.env ?? process.env;
    const [accessKeyId, secretAccessKey] = [env.AWS_ACCESS_KEY_ID, env.AWS_SECRET_ACCESS_KEY];
    if (!accessKeyId || !secretAccessKey)
      throw new ActorsError(
        'SINKFLEX_ARCHIVE',
        `no credentials for the bucket ${bucket}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_ENDPOINT_URL for a store that is not Amazon's)`,
      );
    return new S3(
      {
        bucket,
        endpoint: env.AWS_ENDPOINT_URL_S3 || env.AWS_ENDPOINT_URL,
        region: env.AWS_REGION || env.AWS_DEFAULT_REGION || 'us-east-1',
        accessKeyId,
        secretAccessKey,
        sessionToken: env.AWS_SESSION_TOKEN,
      },
      o.signal,
    );
  }

  /** Objects below a prefix, by key. */
  async *list(prefix: string): AsyncGenerator<StoredObject> {
    for (let token = ''; ; ) {
      const query = { 'list-type': '2', prefix, ...(token ? { 'continuation-token': token } : {}) };
      const answer = await this.#text('GET', '', { query });
      for (const each of elements(answer, 'Contents')) yield { key: element(each, 'Key')!, bytes: Number(element(each, 'Size')) };
      token = element(answer, 'NextContinuationToken') ?? '';
      if (!token) return;
    }
  }

  /** Size and checksum of an object; undefined where there is none of that key. */
  async head(key: string): Promise<{ bytes: number; sha256: string | undefined; etag: string } | undefined> {
    const answer = await this.#send('HEAD', key, { mayBeAbsent: true });
    if (answer.status === 404) return undefined;
    const { headers } = answer;
    return {
      bytes: Number(headers.get('content-length')),
      sha256: headers.get(CHECKSUM) ?? undefined,
      etag: headers.get('etag') ?? '',
    };
  }

  async put(key: string, body: Uint8Array, sha256: string): Promise<void> {
    await this.#text('PUT', key, { body, headers: { [CHECKSUM]: sha256 } });
  }

  /** Bytes `from` to `to` (exclusive) of the object as it was when its `etag` was read. */
  async get(key: string, range: { from: number; to: number; etag: string }): Promise<Uint8Array> {
    const headers = { range: `bytes=${range.from}-${range.to - 1}`, 'if-match': range.etag };
    return this.#retried('GET', key, async () => {
      const bytes = new Uint8Array(await (await this.#once('GET', key, { headers })).arrayBuffer());
      if (bytes.length !== range.to - range.from) throw new Error(`${bytes.length} of ${range.to - range.from} bytes came`);
      return bytes;
    });
  }

  /** Begins an upload in parts; what identifies it. */
  async beginUpload(key: string, sha256: string): Promise<string> {
    const answer = await this.#text('POST', key, { query: { uploads: '' }, headers: { [CHECKSUM]: sha256 } });
    return element(answer, 'UploadId')!;
  }

  /** The upload of a key that was begun last and neither completed nor given up. */
  async pendingUpload(key: string): Promise<string | undefined> {
    const answer = await this.#text('GET', '', { query: { uploads: '', prefix: key } });
    const of = elements(answer, 'Upload').filter((u) => element(u, 'Key') === key);
    const newest = of.sort((a, b) => (element(a, 'Initiated') ?? '').localeCompare(element(b, 'Initiated') ?? '')).at(-1);
    return newest && element(newest, 'UploadId');
  }

  /** ETags of the parts that have arrived, by number. */
  async parts(key: string, uploadId: string): Promise<Map<number, string>> {
    const found = new Map<number, string>();
    for (let marker = ''; ; ) {
      const answer = await this.#text('GET', key, { query: { uploadId, ...(marker ? { 'part-number-marker': marker } : {}) } });
      for (const part of elements(answer, 'Part')) found.set(Number(element(part, 'PartNumber')), element(part, 'ETag')!);
      if (element(answer, 'IsTruncated') !== 'true') return found;
      marker = element(answer, 'NextPartNumberMarker') ?? '';
    }
  }

  /** Its ETag. */
  async putPart(key: string, uploadId: string, partNumber: number, body: Uint8Array): Promise<string> {
    const answer = await this.#send('PUT', key, { query: { partNumber: String(partNumber), uploadId }, body });
    await answer.body?.cancel();
    return answer.headers.get('etag') ?? '';
  }

  async completeUpload(key: string, uploadId: string, etags: readonly string[]): Promise<void> {
    const parts = etags.map((etag, i) => `<Part><PartNumber>${i + 1}</PartNumber><ETag>${etag}</ETag></Part>`).join('');
    const body = Buffer.from(`<CompleteMultipartUpload>${parts}</CompleteMultipartUpload>`);
    await this.#text('POST', key, { query: { uploadId }, body });
  }

  /** The whole text of an answer. A store may report a failure in one that began well. */
  #text(method: string, key: string, request: Request): Promise<string> {
    return this.#retried(method, key, async () => {
      const text = await (await this.#once(method, key, request)).text();
      if (text.includes('<Error>')) throw new Error(element(text, 'Code') ?? 'an error without a code');
      return text;
    });
  }

  #send(method: string, key: string, request: Request): Promise<Response> {
    return this.#retried(method, key, () => this.#once(method, key, request));
  }

  async #retried<T>(method: string, key: string, attempt: () => Promise<T>): Promise<T> {
    const { retries, backoffMs, random } = this.#o;
    for (let tries = 0; ; tries++) {
      try {
        return await attempt();
      } catch (cause) {
        this.#signal?.throwIfAborted();
        const final = cause instanceof Refusal;
        if (final || tries >= retries) throw this.#failure(method, key, cause as Error, tries + 1);
      }
      await after(backoffMs * 2 ** tries * (0.5 + random() / 2), undefined, this.#signal ? { signal: this.#signal } : {});
    }
  }

  /** Rejects with a Refusal where another try would meet the same. */
  async #once(method: string, key: string, { query, headers, body, mayBeAbsent }: Request): Promise<Response> {
    const url = new URL(`${this.#base}/${key.split('/').map(encodeURIComponent).join('/')}`);
    for (const [name, value] of Object.entries(query ?? {})) url.searchParams.set(name, value);
    const digest = createHash('sha256')
      .update(body ?? '')
      .digest('hex');
    const signed = await this.#client.sign(url.href, {
      method,
      headers: { ...headers, 'x-amz-content-sha256': digest },
      ...(body ? { body } : {}),
    });
    const deadline = AbortSignal.timeout(this.#o.timeoutMs);
    const signal = this.#signal ? AbortSignal.any([this.#signal, deadline]) : deadline;
    const answer = await fetch(signed, { signal, redirect: 'manual' });
    if (answer.ok || (mayBeAbsent && answer.status === 404)) return answer;
    const text = await answer.text();
    const code = element(text, 'Code');
    const why = `HTTP ${answer.status}${code ? ` ${code}` : ''}`;
    const passing = answer.status >= 500 || answer.status === 429 || answer.status === 408 || code === 'RequestTimeout';
    throw passing ? new Error(why) : new Refusal(why);
  }

  #failure(method: string, key: string, cause: Error, tries: number): ActorsError {
    const network = (cause.cause as Error | undefined)?.message;
    const why =
      cause.name === 'TimeoutError' ? `no answer within ${this.#o.timeoutMs} ms` : `${cause.message}${network ? `: ${network}` : ''}`;
    return new ActorsError('SINKFLEX_ARCHIVE', `${method} ${this.#base}/${key}: ${why} (${tries === 1 ? 'one try' : `${tries} tries`})`, {
      details: { method, key, tries },
      cause,
    });
  }
}

/** The store has understood and said no. */
class Refusal extends Error {}

const ENTITIES: Record<string, string> = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'" };
/** Answers of S3 are flat lists of elements without attributes; nothing nests within its own kind. */
const elements = (xml: string, name: string): string[] =>
  [...xml.matchAll(new RegExp(`<${name}>([\\s\\S]*?)</${name}>`, 'g'))].map((m) => m[1]!);
const element = (xml: string, name: string): string | undefined =>
  elements(xml, name)[0]?.replace(/&(?:#(\d+)|#x([0-9a-f]+)|(\w+));/gi, (_, decimal, hex, named) =>
    named ? (ENTITIES[named] ?? '') : String.fromCodePoint(Number.parseInt(decimal ?? hex, decimal ? 10 : 16)),
  );

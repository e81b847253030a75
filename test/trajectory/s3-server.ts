// A small S3-compatible store for tests: checks signature version 4 of every request by itself (node:crypto), keeps objects in memory, and
// can be told to fail.
import { createHash, createHmac } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';

export const keys = { accessKeyId: 'TESTKEYID', secretAccessKey: 'test/secret+key', region: 'eu-test-1' };

interface Stored {
  body: Buffer;
  sha256: string;
  etag: string;
}
interface Pending {
  key: string;
  sha256: string;
  parts: Map<number, { etag: string; body: Buffer }>;
}
type Fault = 'unavailable' | 'denied' | 'cut' | 'silent' | 'torn' | 'error in 200';

export async function s3Server() {
  const objects = new Map<string, Stored>();
  const uploads = new Map<string, Pending>();
  const log: string[] = [];
  /** Faults of the next requests that match. */
  const faults: { when: RegExp; fault: Fault }[] = [];
  const server = createServer((request, response) => {
    void answer(request, response);
  });
  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const url = new URL(request.url!, 'http://store');
    const line = `${request.method} ${decodeURIComponent(url.pathname)}${url.search}`;
    log.push(line);
    const at = faults.findIndex(({ when }) => when.test(line));
    const fault = at < 0 ? undefined : faults.splice(at, 1)[0]!.fault;
    const refuse = (status: number, code: string) =>
      response.writeHead(status).end(`<?xml version="1.0"?><Error><Code>${code}</Code></Error>`);
    if (fault === 'silent') return;
    if (fault === 'cut') return void request.socket.destroy();
    if (fault === 'denied') return void refuse(403, 'AccessDenied');
    if (fault === 'unavailable') return void refuse(503, 'SlowDown');
    const wrong = signatureFault(request, url, body);
    if (wrong) return void refuse(403, wrong);
    if (fault === 'error in 200') return void refuse(200, 'InternalError');
    const key = decodeURIComponent(url.pathname).replace(/^\/bucket\/?/, '');
    const query = Object.fromEntries(url.searchParams);
    const xml = (text: string) => response.writeHead(200).end(`<?xml version="1.0"?><Result>${text}</Result>`);
    const sha256 = (request.headers['x-amz-meta-sha256'] as string | undefined) ?? '';
    const put = (content: Buffer, sum: string) => objects.set(key, { body: content, sha256: sum, etag: `"${md5(content)}"` });
    const upload = query.uploadId === undefined ? undefined : uploads.get(query.uploadId);
    switch (request.method) {
      case 'PUT':
        if (query.uploadId !== undefined) {
          if (!upload) return void refuse(404, 'NoSuchUpload');
          const etag = `"${md5(body)}"`;
          upload.parts.set(Number(query.partNumber), { etag, body });
          return void response.writeHead(200, { etag }).end();
        }
        put(body, sha256);
        return void response.writeHead(200).end();
      case 'POST': {
        if ('uploads' in query) {
          const id = `upload&${uploads.size}`;
          uploads.set(id, { key, sha256, parts: new Map() });
          return void xml(`<UploadId>${escaped(id)}</UploadId>`);
        }
        if (!upload) return void refuse(404, 'NoSuchUpload');
        const etags = [...body.toString().matchAll(/<ETag>(.*?)<\/ETag>/g)].map((m) => m[1]);
        const parts = etags.map((etag, i) => (upload.parts.get(i + 1)?.etag === etag ? upload.parts.get(i + 1)! : undefined));
        if (parts.includes(undefined)) return void refuse(400, 'InvalidPart');
        put(Buffer.concat(parts.map((p) => p!.body)), upload.sha256);
        uploads.delete(query.uploadId!);
        return void xml('');
      }
      case 'GET': {
        if ('uploads' in query) {
          const of = [...uploads].filter(([, u]) => u.key.startsWith(query.prefix!));
          return void xml(
            of
              .map(
                ([id, u], i) =>
                  `<Upload><Key>${escaped(u.key)}</Key><UploadId>${escaped(id)}</UploadId><Initiated>2026-01-0${i}</Initiated></Upload>`,
              )
              .join(''),
          );
        }
        if (upload) {
          // Two at a time, so that a reader has to ask on.
          const after = [...upload.parts].sort(([a], [b]) => a - b).filter(([n]) => n > Number(query['part-number-marker'] ?? 0));
          const page = after.slice(0, 2);
          const more =
            after.length > 2 ? `<IsTruncated>true</IsTruncated><NextPartNumberMarker>${page.at(-1)![0]}</NextPartNumberMarker>` : '';
          return void xml(
            page.map(([n, p]) => `<Part><PartNumber>${n}</PartNumber><ETag>${escaped(p.etag)}</ETag></Part>`).join('') + more,
          );
        }
        if (query['list-type'] === '2') {
          const found = [...objects].filter(([k]) => k.startsWith(query.prefix!)).sort(([a], [b]) => (a < b ? -1 : 1));
          const from = Number(query['continuation-token'] ?? 0);
          const contents = found
            .slice(from, from + 3)
            .map(([k, o]) => `<Contents><Key>${escaped(k)}</Key><Size>${o.body.length}</Size></Contents>`);
          return void xml(
            contents.join('') + (from + 3 < found.length ? `<NextContinuationToken>${from + 3}</NextContinuationToken>` : ''),
          );
        }
        const object = objects.get(key);
        if (!object) return void refuse(404, 'NoSuchKey');
        if (request.headers['if-match'] !== object.etag) return void refuse(412, 'PreconditionFailed');
        const [, from, to] = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range!)!;
        const part = object.body.subarray(Number(from), Number(to) + 1);
        response.writeHead(206, { 'content-length': part.length });
        if (fault === 'torn') return void response.write(part.subarray(0, 10), () => response.destroy());
        return void response.end(part);
      }
      default: {
        const object = objects.get(key);
        if (!object) return void response.writeHead(404).end();
        response.writeHead(200, { 'content-length': object.body.length, etag: object.etag, 'x-amz-meta-sha256': object.sha256 }).end();
      }
    }
  }
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const endpoint = `http://127.0.0.1:${(server.address() as { port: number }).port}`;
  return {
    endpoint,
    objects,
    uploads,
    log,
    faults,
    env: {
      AWS_ENDPOINT_URL: endpoint,
      AWS_REGION: keys.region,
      AWS_ACCESS_KEY_ID: keys.accessKeyId,
      AWS_SECRET_ACCESS_KEY: keys.secretAccessKey,
    },
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** The error code that a store would give, or undefined where the signature covers this very request. */
function signatureFault(request: IncomingMessage, url: URL, body: Buffer): string | undefined {
  const given =
    /^AWS4-HMAC-SHA256 Credential=([^/]+)\/(\d{8})\/([^/]+)\/s3\/aws4_request, ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})$/.exec(
      request.headers.authorization ?? '',
    );
  if (!given) return 'AccessDenied';
  const [, id, day, region, names, signature] = given as unknown as [string, string, string, string, string, string];
  if (id !== keys.accessKeyId) return 'InvalidAccessKeyId';
  if (region !== keys.region) return 'AuthorizationHeaderMalformed';
  const date = request.headers['x-amz-date'] as string;
  if (!date.startsWith(day)) return 'AccessDenied';
  if (request.headers['x-amz-content-sha256'] !== createHash('sha256').update(body).digest('hex')) return 'XAmzContentSHA256Mismatch';
  const signed = names.split(';');
  const due = ['host', ...Object.keys(request.headers).filter((name) => name.startsWith('x-amz-'))];
  if (due.some((name) => !signed.includes(name))) return 'AccessDenied';
  const strict = (text: string) => encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  const query = [...url.searchParams].map(([n, v]) => `${strict(n)}=${strict(v)}`).sort();
  const canonical = [
    request.method,
    decodeURIComponent(url.pathname).split('/').map(strict).join('/'),
    query.join('&'),
    ...signed.map((name) => `${name}:${String(request.headers[name]).trim()}`),
    '',
    names,
    request.headers['x-amz-content-sha256'],
  ].join('\n');
  const scope = `${day}/${region}/s3/aws4_request`;
  const toSign = ['AWS4-HMAC-SHA256', date, scope, createHash('sha256').update(canonical).digest('hex')].join('\n');
  let key: string | Buffer = `AWS4${keys.secretAccessKey}`;
  for (const part of [...scope.split('/'), toSign]) key = createHmac('sha256', key).update(part).digest();
  return (key as Buffer).toString('hex') === signature ? undefined : 'SignatureDoesNotMatch';
}

const md5 = (bytes: Uint8Array) => createHash('md5').update(bytes).digest('hex');
const escaped = (text: string) => text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');

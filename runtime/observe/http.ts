// The optional listener for metrics, on loopback. /livez and /readyz are open and say nothing but their status; everything else needs the
// token. Browsers are kept out: the Host must be this listener's own name, and a request of a page (with an Origin) is refused.

import { createHash, timingSafeEqual } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Observatory } from './observatory.ts';

const HEADERS = { 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' } as const;

export interface MetricsListener {
  readonly port: number;
  close(): void;
}

function sameSecret(given: string, token: string): boolean {
  const digest = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(token));
}

export function serveMetrics(port: number, token: string, observatory: Observatory, isReady: () => boolean): Promise<MetricsListener> {
  const end = (response: ServerResponse, status: number, headers: Record<string, string> = {}): void => {
    response.writeHead(status, { ...HEADERS, ...headers, 'content-length': '0' }).end();
  };
  const answer = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const own = (server.address() as AddressInfo | null)?.port;
    const host = request.headers.host;
    if (request.headers.origin !== undefined || (host !== `127.0.0.1:${own}` && host !== `localhost:${own}`)) return end(response, 403);
    const path = request.url?.split('?', 1)[0];
    if (request.method === 'GET' && path === '/livez') return end(response, 200);
    if (request.method === 'GET' && path === '/readyz') return end(response, isReady() ? 200 : 503);
    const given = /^Bearer (.+)$/i.exec(request.headers.authorization ?? '')?.[1];
    if (given === undefined || !sameSecret(given, token)) return end(response, 401, { 'www-authenticate': 'Bearer' });
    if (request.method !== 'GET') return end(response, 405, { allow: 'GET' });
    if (path !== '/metrics') return end(response, 404);
    const text = await observatory.metrics();
    response.writeHead(200, { ...HEADERS, 'content-type': 'text/plain; version=0.0.4; charset=utf-8' }).end(text);
  };
  const server: Server = createServer({ maxHeaderSize: 8192, requestTimeout: 10_000, headersTimeout: 5000 }, (request, response) => {
    // Nothing here has a body; what is sent is not read.
    request.resume();
    answer(request, response).catch(() => {
      if (!response.headersSent) end(response, 500);
    });
  });
  server.maxConnections = 64;
  return new Promise((resolve, reject) => {
    server.once('error', reject);
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => {
      server.unref();
      resolve({
        port: (server.address() as AddressInfo).port,
        close() {
          server.close();
          server.closeAllConnections();
        },
      });
    });
  });
}

// How two ends meet on a pipe: the one that came says who it is, whom it means and which session goes on; the other what it has of that.
import { wrong } from './packet.ts';

export interface Hello {
  from: string;
  /** Where that is. */
  host: string;
  to: string;
  session: string;
  /** The session begins. */
  fresh: boolean;
  /** Highest number of a packet that it has. */
  received: number;
}

export interface Welcome {
  /** The session goes on, or begins. */
  known: boolean;
  received: number;
}

/** Small, and plain: there are few of them. */
const MOST_BYTES = 1024;
const NAME = /^[\w-]{1,64}$/;

function parse(data: Buffer): Record<string, unknown> {
  if (data.length > MOST_BYTES) throw wrong('too long a greeting');
  let value: unknown;
  try {
    value = JSON.parse(data.toString('utf8'));
  } catch {
    throw wrong('a greeting that is none');
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw wrong('a greeting that is none');
  return value as Record<string, unknown>;
}

const isName = (value: unknown): value is string => typeof value === 'string' && NAME.test(value);
const isNumber = (value: unknown): value is number => Number.isInteger(value) && (value as number) >= 0 && (value as number) < 2 ** 32;

export function readHello(data: Buffer): Hello {
  const { from, host, to, session, fresh, received } = parse(data);
  if (!isName(from) || !isName(host) || !isName(to) || !isName(session) || typeof fresh !== 'boolean' || !isNumber(received))
    throw wrong('a greeting that is none');
  return { from, host, to, session, fresh, received };
}

export function readWelcome(data: Buffer): Welcome {
  const { known, received } = parse(data);
  if (typeof known !== 'boolean' || !isNumber(received)) throw wrong('a greeting that is none');
  return { known, received };
}

export const writeHello = (hello: Hello): Buffer => Buffer.from(JSON.stringify(hello));
export const writeWelcome = (welcome: Welcome): Buffer => Buffer.from(JSON.stringify(welcome));

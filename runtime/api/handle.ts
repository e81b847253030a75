// Handles: plain objects with one function a declared method, so that nothing else (then, toJSON, symbols) looks like a method.
import { registerWireClass } from '../wire/index.ts';
import type { ActorClient } from '../worker/client.ts';
import { session } from '../worker/session.ts';
import { RuntimeFailure } from './errors.ts';
import type { AnyHandle, CallOptions } from './types.ts';

/** What a handle answers. */
export interface Shape {
  readonly methods: readonly string[];
  /** Those of them that are generators. */
  readonly streams: readonly string[];
}

/** Base of every handle's prototype; its state is not visible as properties. */
export class Handle {
  readonly #client: ActorClient;
  readonly #kind: string;
  readonly #shape: Shape;
  readonly #options: CallOptions | undefined;

  constructor(client: ActorClient, kind: string, shape: Shape, options?: CallOptions) {
    this.#client = client;
    this.#kind = kind;
    this.#shape = shape;
    this.#options = options;
  }

  static call(handle: Handle, method: string, args: unknown[]): unknown {
    return handle.#client.call(method, args, handle.#options);
  }
  static stream(handle: Handle, method: string, args: unknown[]): unknown {
    return handle.#client.stream(method, args, handle.#options);
  }
  static client(handle: Handle): ActorClient {
    return handle.#client;
  }
  static write(handle: Handle): unknown[] {
    return [handle.#client.target, handle.#client.name, handle.#kind, handle.#shape.methods, handle.#shape.streams];
  }
  static withOptions(handle: Handle, options: CallOptions): Handle {
    return makeHandle(handle.#client, handle.#kind, handle.#shape, { ...handle.#options, ...options });
  }
}

/** Of a handle; undefined for anything else. */
export function handleClient(value: unknown): ActorClient | undefined {
  return value instanceof Handle ? Handle.client(value) : undefined;
}

type HandleClass = new (client: ActorClient, kind: string, shape: Shape, options?: CallOptions) => Handle;
const classes = new Map<string, HandleClass>();

function classFor(kind: string, { methods, streams }: Shape): HandleClass {
  const key = `${kind}(${methods.join()})(${streams.join()})`;
  let type = classes.get(key);
  if (type === undefined) {
    type = class extends Handle {};
    Object.defineProperty(type, 'name', { value: `${kind}Handle` });
    for (const method of methods) {
      const value = streams.includes(method)
        ? function (this: Handle, ...args: unknown[]): unknown {
            return Handle.stream(this, method, args);
          }
        : function (this: Handle, ...args: unknown[]): unknown {
            return Handle.call(this, method, args);
          };
      Object.defineProperty(type.prototype, method, { value, enumerable: true });
    }
    classes.set(key, type);
  }
  return type;
}

export function makeHandle(client: ActorClient, kind: string, shape: Shape, options?: CallOptions): Handle {
  const { methods, streams } = shape;
  return new (classFor(kind, shape))(client, kind, { methods, streams }, options);
}

export function handleOf(value: AnyHandle): Handle {
  if (!(value instanceof Handle)) throw new RuntimeFailure('SINKFLEX_BAD_OPTION', 'this is not a handle of an actor');
  return value as Handle;
}

/** The actor behind a handle. */
export function clientOf(value: AnyHandle): ActorClient {
  return Handle.client(handleOf(value));
}

const MAX_METHODS = 1000;
const name = /^[^\0]{1,200}$/;

registerWireClass(
  'handle',
  Handle,
  (handle) => Handle.write(handle),
  (data) => {
    const [id, actorName, kind, methods, streams] = Array.isArray(data) ? (data as unknown[]) : [];
    const valid =
      typeof id === 'number' &&
      typeof actorName === 'string' &&
      typeof kind === 'string' &&
      Array.isArray(methods) &&
      methods.length <= MAX_METHODS &&
      methods.every(
        (method) => typeof method === 'string' && name.test(method) && method !== 'then' && method !== 'toJSON' && method !== 'constructor',
      ) &&
      Array.isArray(streams) &&
      streams.every((method) => methods.includes(method));
    if (!valid) throw new RuntimeFailure('SINKFLEX_PROTOCOL', 'the peer sent a handle that is none');
    return makeHandle(session().client(id, actorName), kind, { methods, streams });
  },
);

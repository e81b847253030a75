/**
 * A vLLM or SGLang server in the place of our engine: the same sequences and turns, over HTTP. Each turn is drawn by one version of the weights:
 * when the store has a newer one, turns under way end first, the version is written to a folder, and the server reads it from there.
 */
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import type { GenerateRequest, GenerateResult, Version, WeightStore } from '../../kernels/index.ts';
import { ActorsError } from '../errors.ts';
import type { GenerationEngine } from './episode.ts';
import { type ServerCall, type ServerKind, type ServerProtocol, serverProtocol } from './server-protocols.ts';

export interface ServerEngineOptions {
  kind: ServerKind;
  /** Such as http://127.0.0.1:8000. */
  url: string;
  /** The name that the server goes by (vLLM's --served-model-name). */
  model: string;
  /** Where versions are written for the server to read: a folder that both see. */
  folder: string;
  /** Of one request, milliseconds. */
  timeoutMs: number;
  maxSequences: number;
  maxSequenceTokens: number;
  fetch?: typeof fetch;
}

interface ServerSequence {
  ids: number[];
  closing: AbortController;
}

export class ServerEngine implements GenerationEngine {
  readonly #o: ServerEngineOptions;
  readonly #store: WeightStore;
  readonly #protocol: ServerProtocol;
  readonly #sequences = new Map<number, ServerSequence>();
  readonly #waiting: (() => void)[] = [];
  #next = 0;
  /** Turns under way, and who waits for there to be none. */
  #turns = 0;
  #idle: (() => void) | undefined;
  #version: Version | undefined;
  #updating: Promise<void> | undefined;

  constructor(store: WeightStore, o: ServerEngineOptions) {
    this.#store = store;
    this.#o = o;
    this.#protocol = serverProtocol(o.kind, o.model);
  }

  async openSequence(): Promise<number> {
    const until = performance.now() + this.#o.timeoutMs;
    while (this.#sequences.size >= this.#o.maxSequences) await this.#freed(until - performance.now());
    const sequence = this.#next++;
    this.#sequences.set(sequence, { ids: [], closing: new AbortController() });
    return sequence;
  }

  async generate(sequence: number, r: GenerateRequest): Promise<GenerateResult> {
    const open = this.#sequences.get(sequence);
    if (!open) throw this.#failure(`sequence ${sequence} is not open`);
    const prompt = [...open.ids, ...r.tokens];
    const room = this.#o.maxSequenceTokens - prompt.length;
    if (room < 1) return result([], [], { lineage: 0, version: 0 }, 'context');
    const version = await this.#begin();
    try {
      const call = this.#protocol.generate(prompt, { ...r, maxNewTokens: Math.min(r.maxNewTokens, room) }, seedOf(r.key));
      const turn = await this.#ask(call, open.closing.signal, (answer) => this.#protocol.read(answer));
      if (turn === undefined) return result([], [], version, 'aborted');
      const { tokens, logprobs, ended } = turn;
      if (ended === 'aborted') throw this.#failure('the server ended a turn before its end');
      // Half of the evidence is none.
      if (tokens.length === 0 || tokens.length !== logprobs.length || !logprobs.every(Number.isFinite))
        throw this.#failure(`${tokens.length} tokens came with ${logprobs.length} log-probabilities`);
      open.ids = [...prompt, ...tokens];
      return result(tokens, logprobs, version, ended);
    } finally {
      this.#turns--;
      if (this.#turns === 0) this.#idle?.();
    }
  }

  /** A sequence was closed. As long as one request may take, and no longer. */
  #freed(timeoutMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => {
        this.#waiting.splice(this.#waiting.indexOf(free), 1);
        reject(this.#failure(`none of ${this.#o.maxSequences} sequences was closed within ${this.#o.timeoutMs} ms`));
      }, timeoutMs);
      const free = (): void => {
        clearTimeout(late);
        resolve();
      };
      this.#waiting.push(free);
    });
  }

  closeSequence(sequence: number): void {
    const open = this.#sequences.get(sequence);
    if (!open) return;
    this.#sequences.delete(sequence);
    open.closing.abort();
    this.#waiting.shift()?.();
  }

  async dispose(): Promise<void> {
    for (const sequence of [...this.#sequences.keys()]) this.closeSequence(sequence);
    await this.#updating?.catch(() => {});
  }

  /** A turn begins, with the newest version of the store. */
  async #begin(): Promise<Version> {
    for (;;) {
      const current = this.#store.current();
      if (current === undefined) throw this.#failure('there are no weights yet');
      if (this.#updating === undefined && same(this.#version, current)) {
        this.#turns++;
        return current;
      }
      this.#updating ??= this.#update().finally(() => {
        this.#updating = undefined;
      });
      await this.#updating;
    }
  }

  async #update(): Promise<void> {
    if (this.#turns > 0) await new Promise<void>((idle) => (this.#idle = idle));
    this.#idle = undefined;
    const pin = this.#store.pin();
    const version = pin.version;
    pin.release();
    const folder = join(this.#o.folder, `weights-${version.lineage}-${version.version}`);
    mkdirSync(folder, { recursive: true });
    try {
      if (this.#store.adapter) this.#store.saveMerged(folder);
      else await this.#store.saveFolderAsync(folder);
      // What was published meanwhile is the next update's business, unless it is what was written.
      if (!same(this.#store.current(), version)) return;
      const signal = new AbortController().signal;
      for (const call of this.#protocol.update(folder)) await this.#ask(call, signal, () => true);
      this.#version = version;
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  }

  /** undefined where the sequence was closed meanwhile. */
  async #ask<T>(call: ServerCall, closing: AbortSignal, read: (answer: unknown) => T): Promise<T | undefined> {
    const { url, timeoutMs } = this.#o;
    try {
      const response = await (this.#o.fetch ?? fetch)(`${url.replace(/\/$/, '')}${call.path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify(call.body),
        signal: AbortSignal.any([closing, AbortSignal.timeout(timeoutMs)]),
      });
      const text = await response.text();
      if (!response.ok) throw new Error(`HTTP ${response.status} ${text.slice(0, 200)}`);
      const answer: unknown = text === '' ? {} : JSON.parse(text);
      if ((answer as { success?: unknown }).success === false) throw new Error(text.slice(0, 200));
      return read(answer);
    } catch (cause) {
      if (closing.aborted) return undefined;
      throw this.#failure(`${call.path}: ${(cause as Error).message}`, cause);
    }
  }

  #failure(why: string, cause?: unknown): ActorsError {
    return new ActorsError('SINKFLEX_ROLLOUT_SERVER', `the ${this.#o.kind} server at ${this.#o.url}: ${why}`, { cause });
  }
}

const same = (a: Version | undefined, b: Version): boolean => a?.lineage === b.lineage && a.version === b.version;

/** One seed a turn: 31 bits of the four keys of our own generator. */
function seedOf(key: GenerateRequest['key']): number {
  let h = 0x811c9dc5;
  for (const k of key) h = Math.imul(h ^ k, 0x01000193) ^ (h >>> 15);
  return h & 0x7fffffff;
}

function result(
  tokens: number[],
  logprobs: number[],
  { lineage, version }: Pick<Version, 'lineage' | 'version'>,
  stopReason: GenerateResult['stopReason'],
): GenerateResult {
  return {
    tokens: Int32Array.from(tokens),
    logprobs: Float32Array.from(logprobs),
    versions: new Int32Array(tokens.length).fill(version),
    lineage,
    cachedTokens: 0,
    stopReason,
  };
}

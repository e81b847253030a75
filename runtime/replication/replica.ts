// The actor that keeps a copy of a segment on its host: a segment of its own, whose versions follow those of the source. A version is flipped
// when all of it is there and is what the source has, so that no reader ever sees part of one.
import { type SegmentAddress, VersionedSegment } from '../../kernels/host.ts';
import { currentActor, withOptions } from '../api/actors.ts';
import { defineActor } from '../api/definition.ts';
import { RuntimeFailure } from '../api/errors.ts';
import type { ActorHandle } from '../api/types.ts';
import type { SegmentSource } from './source.ts';
import { isNewer, sameVersion, type UpdateHeader, UpdateWriter, type VersionName } from './update.ts';

/** A question to the source stands for so long. */
const ASK_MS = 20_000;
const FIRST_WAIT_MS = 50;
const LONGEST_WAIT_MS = 2000;
/** Regions that may be on their way. */
const AHEAD = 8;

export interface ReplicaOptions {
  source: ActorHandle<typeof SegmentSource>;
  /** As of the segment that it follows. */
  slots?: number;
}

export interface ReplicaStatus {
  version: VersionName | undefined;
  /** Versions that came, and the bytes that they took. */
  versions: number;
  bytes: number;
  /** Why the last try failed, if none has worked since. */
  trouble?: string;
}

export class SegmentReplicaActor {
  readonly #options: ReplicaOptions;
  #segment!: VersionedSegment;
  #versions = 0;
  #bytes = 0;
  #trouble: string | undefined;
  #stopped = false;

  constructor(options: ReplicaOptions) {
    this.#options = options;
  }

  async start(): Promise<void> {
    const { slotBytes } = await this.#options.source.about();
    this.#segment = VersionedSegment.create({ slotBytes, slots: this.#options.slots ?? 3 });
    void this.#follow();
  }

  /** For readers of this host; good as long as this incarnation lives. */
  address(): SegmentAddress {
    return this.#segment.address;
  }

  status(): ReplicaStatus {
    return {
      version: this.#version(),
      versions: this.#versions,
      bytes: this.#bytes,
      ...(this.#trouble === undefined ? {} : { trouble: this.#trouble }),
    };
  }

  /** Resolves when it has that version, or a newer one. */
  async reached(wanted: VersionName, timeoutMs: number): Promise<VersionName> {
    const end = performance.now() + timeoutMs;
    for (;;) {
      const version = this.#version();
      if (version !== undefined && !isNewer(wanted, version)) return version;
      const leftMs = end - performance.now();
      if (leftMs <= 0) {
        const now = version === undefined ? 'nothing' : `version ${version.version}`;
        throw new RuntimeFailure(
          'SINKFLEX_REPLICA_BEHIND',
          `the replica has ${now}, and version ${wanted.version} did not come within ${timeoutMs} ms${this.#trouble === undefined ? '' : `: ${this.#trouble}`}`,
        );
      }
      await this.#segment.waitForVersion(version, { timeoutMs: Math.ceil(leftMs) }).catch(() => {});
    }
  }

  #version(): VersionName | undefined {
    const current = this.#segment.current();
    return current === undefined ? undefined : { lineage: current.lineage, version: current.version };
  }

  async #follow(): Promise<void> {
    for (let waitMs = FIRST_WAIT_MS; !this.#stopped; ) {
      try {
        if (await this.#next()) this.#trouble = undefined;
        waitMs = FIRST_WAIT_MS;
      } catch (error) {
        const { code, final } = error as { code?: unknown; final?: unknown };
        if (this.#stopped || code === 'SINKFLEX_SHUT_DOWN') return;
        this.#trouble = (error as Error).message;
        process.stderr.write(`[sinkflex] ${currentActor().name}: ${this.#trouble}\n`);
        if (final === true) return; // what it has stays; nothing more will come
        await new Promise((resolve) => setTimeout(resolve, waitMs).unref());
        waitMs = Math.min(LONGEST_WAIT_MS, waitMs * 2);
      }
    }
  }

  /** Answers whether a version came. */
  async #next(): Promise<boolean> {
    const have = this.#version();
    const source = withOptions(this.#options.source, { streamWindow: AHEAD });
    const items = source.after(have, ASK_MS) as AsyncIterable<UpdateHeader | Uint8Array>;
    let header: UpdateHeader | undefined;
    const open: (() => void)[] = [];
    try {
      let writer: UpdateWriter | undefined;
      let publish = (_: VersionName): void => {};
      for await (const item of items) {
        if (!(item instanceof Uint8Array)) {
          header = item;
          // Against what this segment had when it asked; nobody else writes here.
          const base = header.base === undefined ? undefined : this.#segment.pin();
          if (base !== undefined) open.push(() => base.release());
          if (base !== undefined && !sameVersion(base.version, header.base))
            throw new Error('changes against another version than was asked for');
          const writing = await this.#segment.beginWrite();
          let published = false;
          open.push(() => {
            if (!published) writing.abort();
          });
          if (header.slotBytes !== writing.bytes) throw new Error('a segment of another size');
          writer = new UpdateWriter(writing, base);
          publish = (version) => {
            published = true;
            writing.publish(version);
          };
        } else await writer!.add(item);
      }
      if (header === undefined || writer === undefined) return false;
      if (!writer.complete) throw new Error('a version that ends early');
      publish({ lineage: header.lineage, version: header.version });
      this.#versions++;
      this.#bytes += writer.bytes;
      return true;
    } finally {
      for (const close of open.reverse()) close();
    }
  }

  stop(): void {
    this.#stopped = true;
    this.#segment?.close();
  }
}

export const SegmentReplica = defineActor(import.meta.url, 'SegmentReplica', SegmentReplicaActor);

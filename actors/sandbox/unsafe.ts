/**
 * `unsafe-subprocess`: plain child processes, for teaching code that one trusts. What runs here can do whatever this user can; it is cut short
 * and its output bounded, and that is all. It has to be asked for by name and says so on standard error.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, constants, fstatSync, mkdirSync, mkdtempSync, openSync, readSync, rmSync, writeFileSync } from 'node:fs';
import { constants as osConstants, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { nanoid } from 'nanoid';
import { ActorsError } from '../errors.ts';
import { checked, checkedPath } from './machine-sandbox.ts';
import type {
  ExecRequest,
  ExecResult,
  Sandbox,
  SandboxInfo,
  SandboxOptions,
  SandboxProvider,
  SandboxStats,
  SelfTestReport,
} from './types.ts';

const FLOOD = 16 * 2 ** 20;
const INTERPRETERS = { python: ['python3', 'main.py'], javascript: [process.execPath, 'main.cjs'], shell: ['/bin/sh', 'main.sh'] } as const;

export class UnsafeSubprocessProvider implements SandboxProvider {
  readonly name = 'unsafe-subprocess';
  readonly #open = new Map<string, UnsafeSubprocess>();
  #created = 0;

  constructor() {
    process.stderr.write(
      '[sinkflex] sandbox unsafe-subprocess: programs of the policy run as this user, with nothing to hold them: trusted teaching code only\n',
    );
  }

  async create(o: SandboxOptions = {}): Promise<Sandbox> {
    this.#created++;
    const id = nanoid(12);
    const info: SandboxInfo = {
      id,
      provider: this.name,
      isolation: 'none',
      createdAt: Date.now(),
      labels: { ...o.labels },
      enforced: ['deadline'],
    };
    const sandbox = new UnsafeSubprocess(info, () => this.#open.delete(id));
    this.#open.set(id, sandbox);
    if (o.ttlMs !== undefined) setTimeout(() => void sandbox.close(), o.ttlMs).unref();
    return sandbox;
  }

  list(): SandboxInfo[] {
    return [...this.#open.values()].map((s) => s.info);
  }

  async destroy(id: string): Promise<boolean> {
    const sandbox = this.#open.get(id);
    await sandbox?.close();
    return sandbox !== undefined;
  }

  /** Nothing is promised, so nothing is missing. */
  async selfTest(): Promise<SelfTestReport> {
    return { provider: this.name, ok: true, limits: [{ limit: 'deadline', enforced: true, found: 'by this process' }], missing: [] };
  }

  stats(): SandboxStats {
    return { open: this.#open.size, warm: 0, created: this.#created, hits: 0, misses: this.#created, hitRate: 0, lost: 0 };
  }

  async close(): Promise<void> {
    await Promise.all([...this.#open.values()].map((s) => s.close()));
  }
}

class UnsafeSubprocess implements Sandbox {
  readonly id: string;
  readonly info: SandboxInfo;
  readonly #folder = mkdtempSync(join(tmpdir(), 'sinkflex-unsafe-'));
  readonly #onGone: () => void;
  #tail: Promise<unknown> = Promise.resolve();
  #closed = false;
  #child: ChildProcess | undefined;

  constructor(info: SandboxInfo, onGone: () => void) {
    this.info = info;
    this.id = info.id;
    this.#onGone = onGone;
  }

  exec(request: ExecRequest): Promise<ExecResult> {
    const r = checked(request);
    const next = this.#tail.then(() => this.#exec(r));
    this.#tail = next.catch(() => {});
    return next;
  }

  async writeFile(path: string, data: string | Uint8Array): Promise<void> {
    const full = join(this.#here(), checkedPath(path));
    mkdirSync(dirname(full), { recursive: true });
    writeFileSync(full, data);
  }

  async readFile(path: string, maxBytes = 2 ** 20): Promise<Buffer | undefined> {
    let fd: number;
    try {
      fd = openSync(join(this.#here(), checkedPath(path)), constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
    } catch (e) {
      if (['ENOENT', 'ELOOP', 'ENOTDIR'].includes((e as NodeJS.ErrnoException).code ?? '')) return undefined;
      throw e;
    }
    try {
      if (!fstatSync(fd).isFile()) return undefined;
      const bytes = Buffer.alloc(Math.min(maxBytes, fstatSync(fd).size));
      return bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, 0));
    } finally {
      closeSync(fd);
    }
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#kill();
    await this.#tail;
    rmSync(this.#folder, { recursive: true, force: true });
    this.#onGone();
  }

  #here(): string {
    if (this.#closed) throw new ActorsError('SINKFLEX_SANDBOX_LOST', `sandbox ${this.id}: it is closed`, { details: { id: this.id } });
    return this.#folder;
  }

  #kill(): void {
    const pid = this.#child?.pid;
    if (pid === undefined) return;
    try {
      process.kill(-pid, 'SIGKILL');
    } catch {
      // Ended meanwhile.
    }
  }

  #exec(r: Required<ExecRequest>): Promise<ExecResult> {
    const folder = this.#here();
    const [program, file] = INTERPRETERS[r.language];
    writeFileSync(join(folder, file), r.code);
    return new Promise((resolve, reject) => {
      const began = performance.now();
      let how: 'exit' | 'timeout' | 'output_limit' = 'exit';
      const child = spawn(program, [file], {
        cwd: folder,
        detached: true,
        stdio: 'pipe',
        env: { PATH: process.env.PATH ?? '/usr/bin:/bin', HOME: folder },
      });
      this.#child = child;
      const stop = (why: 'timeout' | 'output_limit') => {
        if (how === 'exit') how = why;
        this.#kill();
      };
      const timer = setTimeout(() => stop('timeout'), r.timeoutMs);
      const [out, err] = [
        tail(child.stdout, r.maxOutputBytes, () => stop('output_limit')),
        tail(child.stderr, r.maxOutputBytes, () => stop('output_limit')),
      ];
      child.stdin.on('error', () => {});
      child.stdin.end(r.stdin);
      child.on('error', (cause) => {
        clearTimeout(timer);
        reject(
          new ActorsError('SINKFLEX_SANDBOX_MISSING', `unsafe-subprocess: ${program} cannot be started: ${cause.message}`, {
            cause,
            details: { program },
          }),
        );
      });
      // Whatever it started goes with it, so that its pipes end.
      child.on('exit', () => this.#kill());
      child.on('close', (code, signal) => {
        clearTimeout(timer);
        resolve({
          status: how,
          code: how === 'exit' ? code : null,
          signal: how === 'exit' && signal !== null ? osConstants.signals[signal] : null,
          stdout: out.text(),
          stderr: err.text(),
          truncated: out.cut() || err.cut(),
          wallMs: performance.now() - began,
          cpuMs: Number.NaN,
        });
      });
    });
  }
}

/** The end of a stream. */
function tail(stream: NodeJS.ReadableStream, keep: number, onFlood: () => void): { text(): string; cut(): boolean } {
  let kept = Buffer.alloc(0);
  let total = 0;
  stream.on('data', (chunk: Buffer) => {
    total += chunk.length;
    kept = Buffer.concat([kept, chunk]);
    if (kept.length > 2 * keep + 65536) kept = Buffer.from(kept.subarray(kept.length - keep));
    if (total > FLOOD) onFlood();
  });
  const end = () => kept.subarray(Math.max(0, kept.length - keep));
  return { text: () => end().toString('utf8'), cut: () => end().length < total };
}

/** One sandbox of this machine: its processes, its control group, and the conversation with its supervisor. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { ActorsError } from '../errors.ts';
import type { Reply } from './channel.ts';
import type { ControlGroup } from './control-groups.ts';
import type { Launched } from './launch.ts';
import type { ExecRequest, ExecResult, ExecStatus, Sandbox, SandboxInfo } from './types.ts';

export const DEFAULT_TIMEOUT_MS = 10_000;
export const DEFAULT_OUTPUT_BYTES = 64 * 1024;
const DEFAULT_FILE_BYTES = 2 ** 20;
/** A supervisor that answers so much after a program's deadline is well; after it, whatever could starve it is killed and it gets as much again. */
export const DEFAULT_GRACE_MS = 2000;
/** What the supervisor itself does takes moments. */
const FILE_TIMEOUT_MS = 10_000;
/** Longest deadline of a program. */
const MAX_TIMEOUT_MS = 3_600_000;

const STATUSES: ReadonlySet<string> = new Set<ExecStatus>(['exit', 'timeout', 'output_limit']);

export interface MachineParts {
  launched: Launched;
  group: ControlGroup;
  info: SandboxInfo;
  graceMs: number;
  /** Called once, when nothing of it is left (`removed`) or something could not be removed. */
  onGone(removed: boolean): void;
  onLost(): void;
}

export class MachineSandbox implements Sandbox {
  readonly id: string;
  readonly info: SandboxInfo;
  readonly group: ControlGroup;
  readonly #parts: MachineParts;
  #tail: Promise<unknown> = Promise.resolve();
  #oomKills = 0;
  /** Why it can do nothing more. */
  #over: 'closed' | 'lost' | 'agent_killed' | undefined;
  #why = '';
  #destroyed: Promise<void> | undefined;
  #supervisor: number | undefined;

  constructor(parts: MachineParts) {
    this.#parts = parts;
    this.id = parts.info.id;
    this.info = parts.info;
    this.group = parts.group;
  }

  exec(request: ExecRequest): Promise<ExecResult> {
    return this.#inTurn(() => this.#exec(checked(request)));
  }

  async writeFile(path: string, data: string | Uint8Array): Promise<void> {
    await this.#inTurn(async () => {
      const bytes = typeof data === 'string' ? Buffer.from(data) : data;
      this.#accepted(await this.#ask({ op: 'write', path: checkedPath(path) }, bytes), `write ${path}`);
    });
  }

  readFile(path: string, maxBytes = DEFAULT_FILE_BYTES): Promise<Buffer | undefined> {
    return this.#inTurn(async () => {
      const reply = this.#accepted(await this.#ask({ op: 'read', path: checkedPath(path), maxBytes }), `read ${path}`);
      return reply.head.found === true ? reply.body : undefined;
    });
  }

  close(): Promise<void> {
    this.#over ??= 'closed';
    return this.destroy();
  }

  /** Process id of its supervisor, as numbered here. */
  supervisor(): number | undefined {
    this.#supervisor ??= this.group.pids().find((pid) => isFirst(pid));
    return this.#supervisor;
  }

  /** The channel ended, for whatever reason; called by the provider. */
  ended(why: string): void {
    if (this.#over !== undefined) return;
    // Where the kernel killed for want of memory or refused a process, what ran in it asked for too much; nothing else inside reaches the supervisor.
    const exhausted = this.group.oomKills() > 0 || this.group.refusedForks() > 0;
    this.#over = exhausted ? 'agent_killed' : 'lost';
    this.#why = `${why}${this.#parts.launched.complaint() ? `: ${this.#parts.launched.complaint()}` : ''}`;
    if (!exhausted) this.#parts.onLost();
    void this.destroy();
  }

  /** Kills everything, waits until it is gone, removes its groups. */
  destroy(): Promise<void> {
    this.#destroyed ??= this.#destroy();
    return this.#destroyed;
  }

  async #destroy(): Promise<void> {
    const { child, channel } = this.#parts.launched;
    channel.end('the sandbox was closed');
    this.group.kill();
    if (child.exitCode === null && child.signalCode === null && child.pid !== undefined) {
      const exited = once(child, 'exit');
      child.ref();
      child.kill('SIGKILL');
      await exited;
    }
    for (const stream of child.stdio) stream?.destroy();
    const removed = await this.group.remove();
    this.#parts.launched.forget?.();
    this.#parts.onGone(removed);
  }

  async #exec(r: Required<ExecRequest>): Promise<ExecResult> {
    if (this.#over === 'agent_killed') return killed(0);
    const began = performance.now();
    const [code, stdin] = [Buffer.from(r.code), Buffer.from(r.stdin)];
    const head = { op: 'exec', language: r.language, codeBytes: code.length, timeoutMs: r.timeoutMs, maxOutputBytes: r.maxOutputBytes };
    let reply: Reply;
    try {
      reply = await this.#ask(head, code, stdin, r.timeoutMs);
      if (reply.head.ok !== true) throw this.#lose(`its supervisor failed: ${String(reply.head.error)}`);
    } catch (e) {
      // `ended` has run: it knows whose doing it was.
      if ((this.#over as string | undefined) === 'agent_killed') return killed(performance.now() - began);
      throw e;
    }
    const { head: h, body } = reply;
    const cut = Number(h.stdoutBytes);
    if (typeof h.status !== 'string' || !STATUSES.has(h.status) || !(cut >= 0 && cut <= body.length))
      throw this.#lose('its supervisor answered nonsense');
    const result: ExecResult = {
      status: h.status as ExecStatus,
      code: typeof h.code === 'number' ? h.code : null,
      signal: typeof h.signal === 'number' ? h.signal : null,
      stdout: body.toString('utf8', 0, cut),
      stderr: body.toString('utf8', cut),
      truncated: h.truncated === true,
      wallMs: Number(h.wallMs),
      cpuMs: Number(h.cpuMs),
    };
    if (result.signal === 9 && result.status === 'exit') {
      const kills = this.group.oomKills();
      if (kills > this.#oomKills) result.status = 'oom';
      this.#oomKills = kills;
    }
    // Something that cannot be killed is still there: nothing more is run beside it.
    if (h.clean !== true) this.ended('a process outlived its program');
    return result;
  }

  async #ask(
    head: Record<string, unknown>,
    body: Uint8Array = Buffer.alloc(0),
    more: Uint8Array = Buffer.alloc(0),
    timeoutMs = FILE_TIMEOUT_MS,
  ): Promise<Reply> {
    if (this.#over !== undefined) throw this.#gone();
    const answer = this.#parts.launched.channel.ask(head, body, more);
    const inTime = await within(answer, timeoutMs + this.#parts.graceMs);
    if (inTime !== undefined) return inTime.value;
    // It may be starved by what it runs.
    this.group.killExcept(this.supervisor());
    const rescued = this.supervisor() === undefined ? undefined : await within(answer, this.#parts.graceMs);
    if (rescued !== undefined) return rescued.value;
    throw this.#lose('its supervisor does not answer');

    async function within(promise: Promise<Reply>, ms: number): Promise<{ value: Reply } | undefined> {
      let timer: NodeJS.Timeout | undefined;
      const late = new Promise<undefined>((resolve) => {
        timer = setTimeout(() => resolve(undefined), ms);
      });
      try {
        return await Promise.race([promise.then((value) => ({ value })), late]);
      } finally {
        clearTimeout(timer);
      }
    }
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const next = this.#tail.then(work).catch((e: unknown) => {
      throw e instanceof ActorsError ? e : this.#gone(e);
    });
    this.#tail = next.catch(() => {});
    return next;
  }

  #accepted(reply: Reply, what: string): Reply {
    if (reply.head.ok === true) return reply;
    throw new ActorsError('SINKFLEX_SANDBOX_OPTION', `sandbox ${this.id}: ${what}: ${String(reply.head.error)}`, {
      details: { id: this.id },
    });
  }

  #lose(why: string): ActorsError {
    this.ended(why);
    return this.#gone();
  }

  #gone(cause?: unknown): ActorsError {
    const why = this.#over === 'closed' ? 'it is closed' : this.#why || String(cause ?? 'it is gone');
    return new ActorsError('SINKFLEX_SANDBOX_LOST', `sandbox ${this.id}: ${why}`, { cause, details: { id: this.id } });
  }
}

const killed = (wallMs: number): ExecResult => ({
  status: 'agent_killed',
  code: null,
  signal: 9,
  stdout: '',
  stderr: '',
  truncated: false,
  wallMs,
  cpuMs: 0,
});

export function checked(r: ExecRequest): Required<ExecRequest> {
  const refuse = (option: string, value: unknown, why: string): never => {
    throw new ActorsError('SINKFLEX_SANDBOX_OPTION', `exec: ${option}=${JSON.stringify(value)}: ${why}`, { details: { option, value } });
  };
  const { language, code, stdin = '', timeoutMs = DEFAULT_TIMEOUT_MS, maxOutputBytes = DEFAULT_OUTPUT_BYTES } = r;
  if (!['python', 'javascript', 'shell'].includes(language)) refuse('language', language, 'it is python, javascript or shell');
  if (!(timeoutMs > 0 && timeoutMs <= MAX_TIMEOUT_MS)) refuse('timeoutMs', timeoutMs, `it is above 0 and at most ${MAX_TIMEOUT_MS}`);
  if (!(Number.isInteger(maxOutputBytes) && maxOutputBytes >= 0 && maxOutputBytes <= 2 ** 23))
    refuse('maxOutputBytes', maxOutputBytes, 'it is an integer from 0 to 8388608');
  return { language, code, stdin, timeoutMs, maxOutputBytes };
}

export function checkedPath(path: string): string {
  if (path === '' || path.startsWith('/') || path.includes('\0') || path.split('/').includes('..')) {
    throw new ActorsError(
      'SINKFLEX_SANDBOX_OPTION',
      `a file of a sandbox is named relative to /episode, without "..": ${JSON.stringify(path)}`,
      {
        details: { path },
      },
    );
  }
  return path;
}

/** Process 1 of a process namespace below this one's. */
function isFirst(pid: number): boolean {
  try {
    const line = /^NSpid:\t(.*)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]?.split('\t') ?? [];
    return line.length > 1 && line.at(-1) === '1';
  } catch {
    return false;
  }
}

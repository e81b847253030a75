// Nodes that are silent while their connection stands: suspect soon, and given up when their lease is over. What would run twice is ended
// first where the head can reach it.
import { Liveness, type LivenessTimes, type NodeId, type PeerLink, type ToHead } from '../control/index.ts';
import type { Head } from './head.ts';
import type { ProcessName } from './state.ts';

/** An agent whose own loop does not turn for so long does nothing that the head tells it. Its workers go on, and so does its lease. */
const BLOCKED_MS = 2000;
/** How often, and after how long each, it is looked whether a host whose connection has ended listens any more. */
const PROBES = 8;
const PROBE_MS = 250;

export interface PulseOptions {
  liveness?: LivenessTimes;
  /** Ends an agent of this host that is given up, and with it its workers. */
  fence?: (process: ProcessName) => void;
  /** Whether nobody listens there any more; false also where that cannot be told. */
  probe?: (url: string) => Promise<boolean>;
  warn?: (line: string) => void;
  /** Why it is silent, if that can be seen from here. */
  describe?: (process: ProcessName) => string | undefined;
}

export class Pulse {
  readonly #head: Head;
  readonly #options: PulseOptions;
  readonly #liveness: Liveness;
  #watching = false;

  constructor(head: Head, options: PulseOptions) {
    this.#head = head;
    this.#options = options;
    this.#liveness = new Liveness(options.liveness);
  }

  beat({ node, pid, processStart, blockedMs }: ToHead & { t: 'beat' }): void {
    const { state, peers, clock, timers } = this.#head;
    const known = state.nodes.get(node);
    if (known?.pid !== pid || known.start !== processStart) return;
    if (peers.nodeLink(node) === undefined) {
      // Of this host it is known whether the process lives. Another host acts as long as its signs of life are answered.
      if (known.remote !== true) return;
      timers.clear(`node ${node}`);
    }
    this.#liveness.heard(node, clock.now());
    const suspect = state.cluster.suspect(node) !== undefined;
    if (blockedMs > BLOCKED_MS) {
      if (!suspect) this.#suspect(node, `the event loop of its agent (process ${pid}) has not turned for ${seconds(blockedMs)}`);
    } else if (suspect) this.#head.apply({ type: 'node-trusted', node });
    this.#look();
  }

  /** A connection has ended. Processes of this host are followed up elsewhere; of another one the signs of life count, and the end itself. */
  disconnected(link: PeerLink, closed: boolean): void {
    const { peers, routes, clock } = this.#head;
    const node = peers.nodeOf(link);
    if (link.remote !== true) {
      if (node !== undefined) this.#liveness.forget(node);
      return;
    }
    const url = routes.urlOf(link);
    const driver = peers.driverOf(link);
    const { probe } = this.#options;
    if (!closed || url === undefined || probe === undefined) return;
    // Its kernel has closed the connection, so it can be reached; if it says that nobody listens there, the process is gone.
    const away = (): boolean =>
      node !== undefined ? peers.nodeLink(node) === undefined : driver !== undefined && !peers.isAttached(driver);
    const ask = async (times: number): Promise<void> => {
      const gone = await probe(url);
      if (!away()) return;
      if (gone && node !== undefined) this.#giveUp(node, 'its agent has ended');
      else if (gone && driver !== undefined) this.#head.driverGone(driver);
      else if (times > 1) clock.after(PROBE_MS, () => void ask(times - 1), true);
    };
    // A process that ends closes one thing after the other: it may still listen when its connection has gone.
    void ask(PROBES);
  }

  /** The node is no more. */
  gone(node: NodeId): void {
    this.#head.routes.gone(`node ${node}`);
    this.#liveness.forget(node);
  }

  #suspect(node: NodeId, because: string): void {
    this.#head.apply({ type: 'node-suspect', node, because });
  }

  #look(): void {
    if (this.#watching) return;
    const due = this.#liveness.due();
    if (due === undefined) return;
    this.#watching = true;
    const { clock, timers } = this.#head;
    timers.set(
      'pulse',
      Math.max(0, due - clock.now()),
      () => {
        this.#watching = false;
        const { suspect, lost } = this.#liveness.check(clock.now());
        for (const { node, silentMs } of suspect) this.#suspect(node, this.#why(node, silentMs));
        for (const { node, silentMs } of lost) this.#giveUp(node, `silent for ${seconds(silentMs)}`);
        this.#look();
      },
      true,
    );
  }

  #why(node: NodeId, silentMs: number): string {
    const known = this.#head.state.nodes.get(node);
    const seen = known === undefined ? undefined : this.#options.describe?.(known);
    return seen ?? `its agent was last heard of ${seconds(silentMs)} ago`;
  }

  #giveUp(node: NodeId, why: string): void {
    const { state, peers } = this.#head;
    if (state.cluster.node(node) === undefined) return;
    const known = state.nodes.get(node);
    this.#options.warn?.(`node ${node} is given up: ${why}`);
    if (known !== undefined) this.#options.fence?.(known);
    const hangUp = peers.drop(node);
    this.#head.apply({ type: 'node-down', node });
    hangUp?.();
  }
}

function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

// The head of a run as a process of its own, started again when it dies: what runs in the cluster goes on meanwhile.
import { type Running, runHere } from './processes.ts';

const FIRST_WAIT_MS = 100;
/** A head that dies so often within a minute will not live. */
const MOST_DEATHS = 5;
const WINDOW_MS = 60_000;

export interface HeadProcess {
  readonly url: string | undefined;
  /** Of the one that runs now. */
  readonly pid: number;
  /** Resolves with the reason when it is given up. */
  readonly lost: Promise<string>;
  stop(): Promise<void>;
}

export interface HeadOptions {
  folder: string;
  /** `host:port` for other hosts. */
  listen: string | undefined;
  /** Further words: certificates. */
  words: readonly string[];
  /** It died, and is started again. */
  onDeath(how: string): void;
}

export async function startHeadProcess({ folder, listen, words, onDeath }: HeadOptions): Promise<HeadProcess> {
  const start = (where: string | undefined): Running =>
    runHere(['head', '--folder', folder, '--json', '--attended', ...(where === undefined ? [] : ['--listen', where]), ...words]);
  let running = start(listen);
  const { url } = (await running.said) as { url?: string };
  // Agents come back to the port that it had.
  const again = url === undefined ? undefined : new URL(url).host;
  const deaths: number[] = [];
  let stopping = false;
  const lost = (async (): Promise<string> => {
    for (;;) {
      const how = await running.ended;
      if (stopping) return await new Promise<never>(() => {});
      const now = performance.now();
      deaths.push(now);
      const recent = deaths.filter((at) => at > now - WINDOW_MS).length;
      if (recent > MOST_DEATHS) return `the head died ${recent} times within a minute (${how})`;
      onDeath(how);
      await new Promise((resolve) => setTimeout(resolve, FIRST_WAIT_MS * 2 ** (recent - 1)));
      if (!stopping) running = start(again);
    }
  })();
  return {
    url,
    get pid() {
      return running.child.pid!;
    },
    lost,
    async stop() {
      stopping = true;
      await running.stop();
    },
  };
}

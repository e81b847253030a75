// Which host this process is of, as a label that its nodes carry: workers of one host share memory and local sockets, others do not.
import { createHash } from 'node:crypto';
import { hostname } from 'node:os';
import { session } from '../worker/index.ts';

/** Label of every node of a cluster. */
export const HOST_LABEL = 'sinkflex/host';

/** `folder`: where the sockets of the workers are. */
export function hostNameOf(folder: string): string {
  return createHash('sha256').update(`${hostname()}:${folder}`).digest('hex').slice(0, 16);
}

/**
 * The host of the calling driver or actor: the value of the label `sinkflex/host` of its nodes.
 *
 * @example
 * spawn(Trainer, { labels: { [HOST_LABEL]: currentHost() } });   // on this host, where my memory can be opened
 */
export function currentHost(): string {
  return hostNameOf(session().birth.folder);
}

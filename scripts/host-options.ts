// What commands that take part in a cluster of several hosts have in common: their options, and how they are told to end.
import type { Command } from 'commander';

export interface HostFlags {
  attended?: boolean;
  listen?: string;
  name: string[];
  tlsCert?: string;
  tlsKey?: string;
  tlsCa?: string;
}

export function withHostOptions(command: Command, whatListens: string): Command {
  return command
    .option('--attended', 'end in order when standard input ends, as on SIGTERM: for programs that start this one')
    .option('--listen <host:port>', whatListens)
    .option(
      '--name <host>',
      'a name by which other hosts call this one, beside that address (repeatable)',
      (name, all: string[]) => [...all, name],
      [],
    )
    .option('--tls-cert <file>', 'certificate of this host, PEM (or SINKFLEX_TLS_CERT); needed to listen off loopback')
    .option('--tls-key <file>', 'its key (or SINKFLEX_TLS_KEY)')
    .option('--tls-ca <file>', 'who may have signed the certificates of others (or SINKFLEX_TLS_CA); default whom the system trusts');
}

export function hostOptions({ listen, name, tlsCert, tlsKey, tlsCa }: HostFlags): Record<string, string | string[]> {
  return Object.fromEntries(
    Object.entries({ listen, names: name.length > 0 ? name : undefined, tlsCert, tlsKey, tlsCa }).filter(
      (entry): entry is [string, string | string[]] => entry[1] !== undefined,
    ),
  );
}

/** Calls back at each wish that the process should end: a signal, or for `attended` ones the end of standard input. */
export function onEndWanted({ attended }: HostFlags, wanted: (by: 'signal' | 'input') => void): void {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => wanted('signal'));
  if (attended === true) process.stdin.once('close', () => wanted('input')).resume();
}

// Which host has which workers, and how others get there: told by hosts when they join, so that a head that comes back knows it again.
// The head only answers who asks; what hosts say to each other never passes it.
import { RuntimeFailure } from '../api/errors.ts';
import type { Ask, FromHead, HostInfo, PeerLink, Route } from '../control/index.ts';

interface Known {
  /** Its node, or its driver. */
  who: string;
  info: HostInfo;
  link: PeerLink;
}

export class Routes {
  readonly #say: (link: PeerLink, message: FromHead) => void;
  readonly #hosts = new Map<string, Known>();

  constructor(say: (link: PeerLink, message: FromHead) => void) {
    this.#say = say;
  }

  /** Again, after a lost connection; or another process under the same name. */
  joined(who: string, link: PeerLink, info: HostInfo | undefined): void {
    for (const [host, known] of this.#hosts) if (known.who === who && host !== info?.host) this.#forget(host);
    if (info === undefined) return;
    this.#hosts.set(info.host, { who, link, info: { ...info, numbers: [...info.numbers] } });
  }

  /** Numbers were given to it. */
  gave(link: PeerLink, first: number, last: number): void {
    for (const known of this.#hosts.values()) if (known.link === link) known.info.numbers.push([first, last]);
  }

  gone(who: string): void {
    for (const [host, known] of this.#hosts) if (known.who === who) this.#forget(host);
  }

  /** All others hear of it: what they have there is lost. */
  #forget(host: string): void {
    this.#hosts.delete(host);
    for (const { link } of this.#hosts.values()) this.#say(link, { t: 'host-gone', host });
  }

  /** How the host of a node or driver names itself. */
  hostOf(who: string): string | undefined {
    for (const [host, known] of this.#hosts) if (known.who === who) return host;
    return undefined;
  }

  /** Where the host of a peer listens. */
  urlOf(link: PeerLink): string | undefined {
    for (const known of this.#hosts.values()) if (known.link === link) return known.info.url;
    return undefined;
  }

  /** SINKFLEX_UNREACHABLE. */
  find(ask: Ask & { q: 'route' }): Route {
    for (const [host, { info, link }] of this.#hosts) {
      const range = info.numbers.find(([first, last]) => ask.worker >= first && ask.worker <= last);
      if (range === undefined) continue;
      const [first, last] = range;
      if (info.url !== undefined || host === ask.host) return { host, url: info.url, first, last };
      if (ask.url === undefined) throw unreachable(`neither its host nor this one listens where the other can go`);
      this.#say(link, { t: 'dial', host: ask.host, url: ask.url });
      return { host, first, last };
    }
    throw unreachable('no host is known that has it');
  }
}

function unreachable(why: string): RuntimeFailure {
  return new RuntimeFailure('SINKFLEX_UNREACHABLE', `the worker cannot be reached: ${why}`);
}

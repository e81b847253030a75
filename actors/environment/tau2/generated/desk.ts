/**
 * The agent's side of the benchmark's retail tools in few words: a call in words becomes one call of the original's tool, its answer becomes the
 * words that matter, and long ids become short aliases that hold for the episode.
 */
import type { Order, Product, User } from '../retail/data.ts';
import type { RetailWorld } from '../retail/world.ts';
import type { Session } from '../session.ts';
import type { Tau2Message } from '../tasks.ts';
import { neighbours } from './task.ts';
import { ALIASES, type AliasKind, CALLS, type CallName, REASONS, SOURCES, slug } from './words.ts';

const STATUS: Record<string, string> = {
  'pending (item modified)': 'modified',
  'exchange requested': 'exchanged',
  'return requested': 'returned',
};

class Aliases {
  readonly #ids = new Map<string, string[]>();

  of(kind: AliasKind, id: string): string {
    const [letter, most] = ALIASES[kind];
    const ids = this.#ids.get(kind) ?? [];
    this.#ids.set(kind, ids);
    let at = ids.indexOf(id);
    if (at < 0) at = ids.length < most ? ids.push(id) - 1 : most - 1;
    return `${letter}${at + 1}`;
  }

  id(kind: AliasKind, word: string | undefined): string | undefined {
    const [letter] = ALIASES[kind];
    if (word === undefined || word[0] !== letter || !/^\d+$/.test(word.slice(1))) return undefined;
    return this.#ids.get(kind)?.[Number(word.slice(1)) - 1];
  }
}

export interface CompactAnswer {
  text: string;
  /** The tool refused. */
  error: boolean;
  /** What cannot be read as a call is not one. */
  unread: boolean;
  wrote: boolean;
}

const unread: CompactAnswer = { text: 'error not known', error: true, unread: true, wrote: false };

export class CompactDesk {
  readonly #session: Session<RetailWorld>;
  readonly #aliases = new Aliases();
  /** Calls and answers as the evaluator reads them. */
  readonly messages: Tau2Message[] = [];
  #user: string | undefined;
  /** By alias, what an item is a variant of. */
  readonly #items = new Map<string, Order['items'][number]>();

  constructor(session: Session<RetailWorld>) {
    this.#session = session;
  }

  /** Whether a customer was found. */
  get identified(): boolean {
    return this.#user !== undefined;
  }

  /** One call in words, without `call`. */
  call(words: readonly string[]): CompactAnswer {
    const [name, ...rest] = words;
    if (name === undefined || !Object.hasOwn(CALLS, name)) return unread;
    const args = this.#arguments(name as CallName, rest);
    if (!args) return unread;
    const call = { id: `c${this.messages.length}`, name: CALLS[name as CallName], arguments: args, requestor: 'assistant' as const };
    const answer = this.#session.respond(call);
    this.messages.push(
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', id: call.id, requestor: 'assistant', ...answer },
    );
    if (answer.error) return { text: 'error', error: true, unread: false, wrote: false };
    const wrote = this.#session.mutates(call.name);
    return { text: wrote ? 'ok' : this.#shown(name as CallName, answer.content, rest), error: false, unread: false, wrote };
  }

  #arguments(name: CallName, words: readonly string[]): Record<string, unknown> | undefined {
    const [first, second] = words;
    const order = this.#aliases.id('order', first);
    const last = this.#aliases.id('payment', words.at(-1));
    switch (name) {
      case 'find': {
        const digits = words.slice(2);
        if (digits.length !== 5 || !digits.every((d) => /^\d$/.test(d))) return undefined;
        return { first_name: first, last_name: second, zip: digits.join('') };
      }
      case 'user':
        return words.length === 0 && this.#user !== undefined ? { user_id: this.#user } : undefined;
      case 'order':
        return words.length <= 2 && order !== undefined ? { order_id: order } : undefined;
      case 'product': {
        const item = words.length <= 2 ? this.#items.get(first ?? '') : undefined;
        return item && { product_id: item.product_id };
      }
      case 'cancel':
        if (words.length !== 2 || order === undefined || !Object.hasOwn(REASONS, second!)) return undefined;
        return { order_id: order, reason: REASONS[second as keyof typeof REASONS] };
      case 'return': {
        const items = words.slice(1, -1).map((word) => this.#aliases.id('item', word));
        if (order === undefined || last === undefined || items.length === 0 || items.includes(undefined)) return undefined;
        return { order_id: order, item_ids: items, payment_method_id: last };
      }
      case 'exchange':
      case 'modify': {
        const pairs = words.slice(1, -1);
        const items = pairs.filter((_, i) => i % 2 === 0).map((word) => this.#aliases.id('item', word));
        const variants = pairs.filter((_, i) => i % 2 === 1).map((word) => this.#aliases.id('variant', word));
        if (order === undefined || last === undefined || items.length === 0 || items.length !== variants.length) return undefined;
        if ([...items, ...variants].includes(undefined)) return undefined;
        return { order_id: order, item_ids: items, new_item_ids: variants, payment_method_id: last };
      }
      case 'address': {
        const home = this.#user === undefined ? undefined : this.#session.world.user(this.#user).address;
        return words.length === 1 && order !== undefined && home ? { order_id: order, ...home } : undefined;
      }
      case 'pay':
        return words.length === 2 && order !== undefined && last !== undefined ? { order_id: order, payment_method_id: last } : undefined;
    }
  }

  /** What a look-up showed: each thing and its alias, or the alias of the one thing that was asked for. Read from the world: it is what the tool's JSON says. */
  #shown(name: CallName, content: string, words: readonly string[]): string {
    const { world } = this.#session;
    const of = (kind: AliasKind, id: string) => this.#aliases.of(kind, id);
    if (name === 'find') {
      this.#user = content;
      return 'known';
    }
    if (name === 'user') {
      const user: Readonly<User> = world.user(this.#user!);
      const methods = [...user.payment_methods.values()].map((m) => `${SOURCES[m.source]} ${of('payment', m.id)}`);
      return ['orders', ...user.orders.map((id) => of('order', id)), 'pays', ...methods].join(' ');
    }
    if (name === 'order') {
      const order = world.order(this.#aliases.id('order', words[0])!);
      const paid = order.payment_history[0];
      const items = order.items.map((item) => {
        const alias = of('item', item.item_id);
        this.#items.set(alias, item);
        return words[1] === undefined ? `${slug(item.name)} ${alias}` : slug(item.name) === words[1] ? alias : '';
      });
      const shown = items.filter((text) => text !== '');
      if (shown.length === 0) shown.push('nothing');
      return [STATUS[order.status] ?? order.status, ...(paid ? ['by', of('payment', paid.payment_method_id)] : []), ...shown].join(' ');
    }
    const item = this.#items.get(words[0]!)!;
    const product: Readonly<Product> = world.product(item.product_id);
    const variants = neighbours(product, item).map((variant) => {
      const [, value] = [...variant.options].find(([key, value]) => item.options.get(key) !== value)!;
      const alias = variant.available ? of('variant', variant.item_id) : 'out';
      return words[1] === undefined ? `${slug(value)} ${alias}` : slug(value) === words[1] ? alias : '';
    });
    return variants.filter((text) => text !== '').join(' ') || 'nothing';
  }
}

/**
 * Whether what an agent proposes is what the user wants: the kind of change, orders, items, variants, payment, address and reason that the text
 * names, against the wishes that are still open. What the text does not name is not held against it.
 */
import type { ExecutedCall } from '../../../user/index.ts';

export interface Wish {
  name: string;
  arguments: Record<string, unknown>;
  /** The reference itself succeeds in it; else the user may agree to it, but need not see it done. */
  works: boolean;
}

const KINDS: Record<string, RegExp> = {
  cancel_pending_order: /\bcancel/,
  return_delivered_order_items: /\breturn|\brefund|\bsend back/,
  exchange_delivered_order_items: /\bexchang|\bswap|\breplac|\bswitch/,
  modify_pending_order_items: /\bmodif|\bchang|\bupdat|\bexchang|\bswap|\breplac|\bswitch|\bupgrad/,
  modify_pending_order_address: /\baddress|\bship|\bdeliver/,
  modify_user_address: /\baddress|\bprofile/,
  modify_pending_order_payment: /\bpay/,
};
const ANY_KIND = new RegExp(
  Object.values(KINDS)
    .map((kind) => kind.source)
    .join('|'),
);

const text = (value: unknown): string => (typeof value === 'string' ? value : '');
const list = (value: unknown): string[] => (Array.isArray(value) ? value.map(String) : []);

/** `#W1234567` of either spelling. */
const orderKey = (id: string): string => id.replace('#', '').toUpperCase();

export interface Knowledge {
  /** Options of each variant that a tool has shown, by item. */
  options: ReadonlyMap<string, { product: string; options: Record<string, string> }>;
}

/** What the agent's look-ups have shown of variants. */
export function knowledge(calls: readonly ExecutedCall[]): Knowledge {
  const options = new Map<string, { product: string; options: Record<string, string> }>();
  const visit = (value: unknown, product: string): void => {
    if (typeof value !== 'object' || value === null) return;
    const record = value as Record<string, unknown>;
    const own = text(record.name) || product;
    if (typeof record.item_id === 'string' && typeof record.options === 'object' && record.options !== null) {
      options.set(record.item_id, { product: own, options: record.options as Record<string, string> });
    }
    for (const part of Object.values(record)) visit(part, own);
  };
  for (const { content, error } of calls) {
    if (error || !content.startsWith('{')) continue;
    try {
      visit(JSON.parse(content), '');
    } catch {
      // A tool may answer in words.
    }
  }
  return { options };
}

/** Whether a call that was made does what a wish asks for; the order of items in it does not matter. */
export function fulfils(call: { name: string; arguments: Record<string, unknown> }, wish: Wish): boolean {
  if (call.name !== wish.name) return false;
  const pairs = (args: Record<string, unknown>) =>
    list(args.item_ids)
      .map((id, i) => `${id} ${list(args.new_item_ids)[i] ?? ''}`)
      .sort()
      .join();
  if (pairs(call.arguments) !== pairs(wish.arguments)) return false;
  return Object.entries(wish.arguments).every(
    ([key, value]) => key === 'item_ids' || key === 'new_item_ids' || call.arguments[key] === value,
  );
}

export interface JudgeOptions {
  /** A proposal that names items must name all of a wish. */
  strict: boolean;
  known: Knowledge;
}

/** Whether the user can say yes to this. */
export function agrees(said: string, open: readonly Wish[], o: JudgeOptions): boolean {
  const lower = said.toLowerCase();
  const orders = new Set((said.match(/#?\bW\d{7}\b/gi) ?? []).map(orderKey));
  const meant = open.filter(({ name, arguments: args }) => {
    if (ANY_KIND.test(lower) && !KINDS[name]?.test(lower)) return false;
    if (orders.size === 0) return true;
    // A profile's new address may come from an order, which is then named beside it.
    return args.order_id === undefined ? /\b(profile|default|account)\b/.test(lower) : orders.has(orderKey(text(args.order_id)));
  });
  if (meant.length === 0) return false;
  return payments(said, meant) && addresses(lower, meant) && reasons(lower, meant) && items(said, lower, meant, o);
}

function payments(said: string, meant: readonly Wish[]): boolean {
  const named = said.match(/\b(credit_card|gift_card|paypal)_\d+\b/g) ?? [];
  const wanted = meant.map((w) => w.arguments.payment_method_id).filter((id) => id !== undefined);
  if (named.length === 0 || wanted.length === 0) return true;
  if (meant.some((w) => w.name === 'modify_pending_order_payment')) return named.some((id) => wanted.includes(id));
  return named.every((id) => wanted.includes(id));
}

function reasons(lower: string, meant: readonly Wish[]): boolean {
  const wanted = meant.flatMap((w) => (typeof w.arguments.reason === 'string' ? [w.arguments.reason] : []));
  const named = ['no longer needed', 'ordered by mistake'].filter((reason) => lower.includes(reason));
  return wanted.length === 0 || named.length === 0 || named.some((reason) => wanted.includes(reason));
}

function addresses(lower: string, meant: readonly Wish[]): boolean {
  const wanted = meant.filter((w) => w.arguments.address1 !== undefined);
  if (wanted.length === 0) return true;
  const fits = (pattern: RegExp, keys: readonly string[]): boolean => {
    const named = lower.match(pattern) ?? [];
    const right = wanted.map((w) =>
      keys
        .map((key) => text(w.arguments[key]))
        .join(' ')
        .toLowerCase(),
    );
    return named.length === 0 || named.some((piece) => right.some((address) => address.includes(piece)));
  };
  return (
    fits(/\b\d+ [a-z]+ (street|avenue|drive|lane|road|highway|court|boulevard|st|ave)\b/g, ['address1']) &&
    fits(/\bsuite \d+\b/g, ['address1', 'address2']) &&
    fits(/(?<![\d#$.])\b\d{5}\b(?!\.)/g, ['zip'])
  );
}

function items(said: string, lower: string, meant: readonly Wish[], o: JudgeOptions): boolean {
  const wanted = meant.filter((w) => w.arguments.item_ids !== undefined);
  // A wish about a whole order or an address lists items at will.
  if (wanted.length < meant.length) return true;
  const named = new Set(said.match(/(?<![\d_])\d{10}(?!\d)/g) ?? []);
  const all = new Set(wanted.flatMap((w) => [...list(w.arguments.item_ids), ...list(w.arguments.new_item_ids)]));
  if ([...named].some((id) => !all.has(id))) return false;
  const target = (w: Wish) => list(w.arguments.new_item_ids ?? w.arguments.item_ids);
  const spelled = wanted.filter((w) => target(w).some((id) => named.has(id)));
  if (o.strict && spelled.length > 0 && !spelled.some((w) => target(w).every((id) => named.has(id)))) return false;
  // In words: an option of another variant where the right one is not named.
  return wanted.every((w) =>
    list(w.arguments.new_item_ids).every((id, i) => named.has(id) || wordsFit(lower, id, list(w.arguments.item_ids)[i], o.known)),
  );
}

function wordsFit(lower: string, id: string, old: string | undefined, { options }: Knowledge): boolean {
  const right = options.get(id);
  if (!right || !lower.includes(right.product.toLowerCase())) return true;
  const has = (value: string | undefined) =>
    value !== undefined && new RegExp(`(?<!\\w)${literally(value.toLowerCase())}(?!\\w)`).test(lower);
  for (const [key, value] of Object.entries(right.options)) {
    if (has(value)) continue;
    const before = old === undefined ? undefined : options.get(old)?.options[key];
    for (const other of options.values()) {
      const named = other.product === right.product ? other.options[key] : undefined;
      if (named !== value && named !== before && has(named)) return false;
    }
  }
  return true;
}

const literally = (value: string): string => value.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

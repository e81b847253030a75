/**
 * The words of tau2-retail-generated: what its database can say, one token a word, and what agent and tools say. The tokenizer is made from
 * here, so that a run needs the data but a tokenizer does not.
 */

/** A name or an option of the database as one word: `Water Bottle` is `water-bottle`. */
export const slug = (text: string): string => text.toLowerCase().replace(/\s+/g, '-');

/** First names of customers. */
export const FIRST_NAMES: readonly string[] = `
  aarav amelia anya ava chen daiki emma ethan evelyn fatima harper isabella ivan james juan lei liam lucas mason mei mia mohamed
  noah olivia omar raj sofia sophia yara yusuf
`
  .trim()
  .split(/\s+/);

/** Their last names. */
export const LAST_NAMES: readonly string[] = `
  ahmed anderson brown davis garcia gonzalez hernandez ito jackson johansson johnson khan kim kovacs lee li lopez martin moore
  muller nguyen patel rossi sanchez santos silva smith taylor thomas wilson
`
  .trim()
  .split(/\s+/);

/** Products. */
export const PRODUCTS: readonly string[] = `
  action-camera air-purifier backpack bicycle bluetooth-speaker bookshelf coffee-maker cycling-helmet desk-lamp digital-camera
  dumbbell-set e-reader electric-kettle electric-toothbrush espresso-machine fleece-jacket gaming-mouse garden-hose grill headphones
  hiking-boots indoor-security-camera jigsaw-puzzle laptop led-light-bulb luggage-set makeup-kit mechanical-keyboard notebook
  office-chair patio-umbrella perfume pet-bed portable-charger running-shoes skateboard smart-thermostat smart-watch smartphone
  sneakers sunglasses t-shirt tablet tea-kettle vacuum-cleaner wall-clock water-bottle wireless-earbuds wristwatch yoga-mat
`
  .trim()
  .split(/\s+/);

/** Values of options of variants. */
export const VALUES: readonly string[] = `
  1-cup 1-liter 1.5-liters 1.5l 10 10-hours 10-inch 10-inches 1000 10000mah 1000ml 100ft 100ml 100w-equivalent 1080p 10x 11
  110-degrees 12 12-inches 128gb 13-inch 130-degrees 14-inches 15-bar 15-inch 1500 160-degrees 16gb 17-inch 19-bar 1l 1tb-ssd 2-cups
  2-liters 2-piece 20-hours 2000 20000mah 20mp 24mp 256gb 256gb-ssd 25ft 28-inch 2k 2l 3-ft 3-piece 30-50-lbs 30ml 30mp 31-inch 32gb
  34-inch 3x 4-cups 4-ft 4-hours 4-piece 4gb 4k 4mm 5-25-lbs 5-ft 5.8-inch 500 5000mah 500ml 50ft 50ml 512gb-ssd 55-75-lbs 5k 5mm 5x
  6 6-ft 6-hours 6-inch 6.1-inch 6.5-inch 60% 60w-equivalent 64gb 6gb 6mm 7 7-ft 7-inch 750ml 75w-equivalent 8 8-cups 8-hours 8-inch
  80% 8gb 9 9-bar a4 a5 a6 aa-batteries ac-adapter adjustable amazon-alexa amoled analog animals apple-homekit art auto-shutoff
  auto-tilt automatic bagged bagless bamboo basic battery beginner beige black blue bluetooth brand-a brand-b brand-c brown
  built-in-grinder camera canister canvas capsule carbon ceramic cf-card charcoal clicky cordless cotton crew-neck custom dark
  daylight digital drip electric espresso ethernet eva expert fabric fantasy fixed fleece french-press fresh full full-size gas
  glass gold google-assistant graphic gray green grey half hard-cover hardshell hepa hepa-filter high high-back hydration i5 i7 i9
  in-ear induction intermediate ionic ipx4 ipx7 iron l landscape laptop large laser latex lcd leather light linear low m manual
  manual-tilt maple medium memory-foam men mesh metal mountain natural-rubber navy night-mode no non-polarized none not-resistant
  nylon olefin on-ear optical oriental over-ear pet-hair-removal pink plain plastic polarized polyester portable professional purple
  pvc quiet-operation rechargeable red rgb road robotic rose-gold rotisserie rubber s sd-card side-burner silicone silver small
  smart-sensors soft-cover softshell space-grey stainless-steel standard sunbrella synthetic tactile timer tpe unisex upright
  urethane usb usb-a usb-c v-neck vinyl warm-white white wi-fi wi-fi-+-cellular wired wireless women wood woody xl xs xxl yellow yes
`
  .trim()
  .split(/\s+/);

/** Digits, for zip codes, are written apart. */
export const spoken = (digits: string): string => [...digits].join(' ');

/** Short names of what an episode has shown so far: order `o2`, item `i5`, variant `v3`, payment method `p1`. */
export const ALIASES = { order: ['o', 6], item: ['i', 32], variant: ['v', 40], payment: ['p', 6] } as const;
export type AliasKind = keyof typeof ALIASES;

export const SOURCES = { credit_card: 'credit-card', gift_card: 'gift-card', paypal: 'paypal' } as const;
export const STATUS_WORDS = ['pending', 'processed', 'delivered', 'cancelled', 'modified', 'exchanged', 'returned'] as const;

/** What the agent can call: each is one tool of the benchmark. */
export const CALLS = {
  find: 'find_user_id_by_name_zip',
  user: 'get_user_details',
  order: 'get_order_details',
  product: 'get_product_details',
  cancel: 'cancel_pending_order',
  return: 'return_delivered_order_items',
  exchange: 'exchange_delivered_order_items',
  modify: 'modify_pending_order_items',
  address: 'modify_pending_order_address',
  pay: 'modify_pending_order_payment',
} as const;
export type CallName = keyof typeof CALLS;

export const REASONS = { unneeded: 'no longer needed', mistake: 'ordered by mistake' } as const;
/** How the agent ends: it is done, or it could not do it. */
export const CLOSINGS = ['done', 'denied'] as const;

export const RULES = 'pending : cancel modify address pay . delivered : return exchange . other : denied';
export const PARDON = 'pardon';

/** Every word that can come up, each once. */
export function words(): string[] {
  const aliases = Object.values(ALIASES).flatMap(([letter, count]) => Array.from({ length: count }, (_, i) => `${letter}${i + 1}`));
  const said = 'call ok error known not nothing orders pays paid by zip wants to with the change return cancel send home pay out : .'.split(
    ' ',
  );
  return [
    ...new Set([
      ...'0123456789',
      ...said,
      ...Object.keys(CALLS),
      ...Object.keys(REASONS),
      ...Object.values(SOURCES),
      ...STATUS_WORDS,
      ...CLOSINGS,
      ...RULES.split(' '),
      PARDON,
      ...aliases,
      ...FIRST_NAMES,
      ...LAST_NAMES,
      ...PRODUCTS,
      ...VALUES,
    ]),
  ];
}

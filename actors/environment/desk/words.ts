/** The words of the desk: every text that agent, tools and user can say, in one place. The tokenizer's vocabulary is made from here. */

export const STANDINGS = ['gold', 'plus', 'basic', 'guest', 'hold'] as const;
export type Standing = (typeof STANDINGS)[number];

/** What a rider of some standing gets. `flat` is written as its amount, a digit. */
export const TREATMENTS = ['full', 'half', 'flat', 'none', 'transfer'] as const;
export type Treatment = (typeof TREATMENTS)[number];

export const PARTS = ['brake', 'battery', 'tyre', 'chain', 'lamp'] as const;
/** What a light can mean; `fine` is no fault. */
export const CONDITIONS = [...PARTS, 'fine'] as const;
export type Condition = (typeof CONDITIONS)[number];
export type Part = (typeof PARTS)[number];

export const COLOURS = ['red', 'blue', 'white', 'yellow', 'pink', 'green'] as const;
export type Colour = (typeof COLOURS)[number];

/** Meaning of the lights where the rules do not say otherwise, in the order of COLOURS. */
export const USUAL_LIGHTS: readonly Condition[] = CONDITIONS;

/** Rides are called by the spelling alphabet and bikes by their names: one word, one token. Only riders' codes have digits. */
export const RIDE_NAMES = ['alpha', 'bravo', 'charlie', 'delta', 'echo', 'foxtrot', 'golf', 'hotel', 'india', 'juliet'] as const;
export const BIKE_NAMES = ['badger', 'falcon', 'hare', 'heron', 'lynx', 'newt', 'otter', 'robin', 'swift', 'wren'] as const;

/** What the agent can say to the user, word for word. `walk` is followed by a dock, `rule` by a standing and what the rules give it. */
export const REQUESTS = {
  code: 'please tell me your code',
  bluetooth: 'please switch bluetooth on',
  latch: 'please push the latch',
  walk: 'please walk to dock',
  light: 'what colour is the light',
  rule: 'rules say',
} as const;

export const CLOSING = 'done refund';

export const TOOLS = {
  find_rider: [{ name: 'code', digits: 2 }],
  get_ride: [{ name: 'ride', words: RIDE_NAMES }],
  get_bike: [{ name: 'bike', words: BIKE_NAMES }],
  docks: [],
  lock: [{ name: 'bike', words: BIKE_NAMES }],
  end_ride: [{ name: 'ride', words: RIDE_NAMES }],
  flag: [
    { name: 'bike', words: BIKE_NAMES },
    { name: 'part', words: PARTS },
  ],
  refund: [
    { name: 'ride', words: RIDE_NAMES },
    { name: 'amount', digits: 1 },
  ],
  transfer: [],
} as const;
export type ToolName = keyof typeof TOOLS;

/** A code as it is written and read aloud: `4 7`. */
export const spoken = (id: string): string => id.split('').join(' ');

export const USER = {
  stuck: 'my ride will not end',
  refund: 'please refund me',
  code: (code: string) => `it is ${spoken(code)}`,
  on: 'it is on',
  beeps: 'it beeps',
  full: 'the dock is full',
  shut: 'it is shut',
  there: 'i am there',
  noDock: 'no dock',
  light: (colour: Colour) => `it is ${colour}`,
  thanks: 'ok',
  pardon: 'pardon',
} as const;

export const RESULT = {
  rider: (standing: Standing, ride: string) => `${standing} ride ${ride}`,
  ride: (bike: string, cost: number) => `bike ${bike} cost ${cost}`,
  bike: (locked: boolean, dock: number, flag: string) => `${locked ? 'locked' : 'open'} dock ${dock} ${flag}`,
  docks: (free: readonly number[]) => ['free dock', ...free].join(' '),
  ok: 'ok',
  noRider: 'error no rider',
  noRide: 'error no ride',
  noBike: 'error no bike',
  latchOpen: 'error latch open',
  bikeOpen: 'error bike open',
  bikeLocked: 'error bike locked',
  rideOpen: 'error ride open',
  rideEnded: 'error ride ended',
  tooMuch: 'error too much',
  refunded: 'error refund done',
  noCall: 'error no call',
} as const;

/** Every word of the domain once, digits apart, in an order that only grows at the end of each list. */
export function deskWords(): string[] {
  const texts = [
    'rules lights',
    ...STANDINGS,
    'full half none transfer',
    ...COLOURS,
    ...CONDITIONS,
    ...RIDE_NAMES,
    ...BIKE_NAMES,
    ...Object.values(REQUESTS),
    CLOSING,
    'call',
    ...Object.keys(TOOLS),
    ...[USER.stuck, USER.refund, USER.code(''), USER.on, USER.beeps, USER.full, USER.shut, USER.there, USER.noDock, USER.pardon],
    ...[RESULT.rider('gold', ''), RESULT.ride('', 0), RESULT.bike(true, 0, 'none'), RESULT.bike(false, 0, 'none'), RESULT.docks([])],
    ...Object.values(RESULT).filter((text) => typeof text === 'string'),
  ];
  return [...new Set(texts.flatMap((text) => text.split(' ')).filter((word) => /^[a-z_]+$/.test(word)))];
}

/**
 * A user that follows a script: a pure function of the script, what the agent said and what it was seen to do. It tells what it is asked for,
 * agrees to what it wants and to nothing else, changes its mind where the script says so, and ends the conversation in a turn of its own.
 */
import { z } from 'zod';
import { ActorsError } from '../../../../errors.ts';
import type { Message } from '../../../types.ts';
import type { ExecutedCall, UserSimulator, UserStart, UserTurn } from '../../../user/index.ts';
import { agrees, fulfils, knowledge, type Wish } from './judge.ts';
import { type Reading, readAgent, type Slot } from './reading.ts';
import { type ScriptFile, scriptFile, type UserScript } from './script.ts';
import { STYLES, Voice } from './style.ts';

const Options = z.strictObject({
  /** `plain` says all at once, `terse` one sentence a turn, `chatty` wraps each in talk. */
  style: z.enum(STYLES).default('plain'),
  /** `strict`: items that are named must be all that are meant. */
  confirm: z.enum(['strict', 'lenient']).default('strict'),
  /** A file of scripts in place of the project's own. */
  script: z.string().min(1).optional(),
});

const STOP = '###STOP###';
const TRANSFER = '###TRANSFER###';
const LOST = '###OUT-OF-SCOPE###';
/** Turns in a row that led nowhere, after which the user hangs up. */
const PATIENCE = 3;

/** Why there is no scripted user for a task; undefined where there is one. */
export function refusesTask(domain: string, task: string, options: Record<string, unknown>): string | undefined {
  if (domain !== 'retail') return 'scripts are there for tau2-retail alone';
  const file = scriptFile(readOptions(options).script);
  if (file.scripts.has(task)) return undefined;
  return file.unscripted.get(task) ?? 'the file has no script for it';
}

function readOptions(options: Record<string, unknown>): z.infer<typeof Options> {
  const read = Options.safeParse(options);
  if (read.success) return read.data;
  const { path, message } = read.error.issues[0]!;
  const option = ['user_options', ...path].join('.');
  throw new ActorsError(
    'SINKFLEX_ENVIRONMENT_OPTION',
    `option ${option} of user=scripted: ${message}; it takes style, confirm and script`,
    {
      details: { option },
    },
  );
}

export class ScriptedUser implements UserSimulator {
  readonly kind: string;
  readonly #o: z.infer<typeof Options>;
  readonly #file: ScriptFile;
  #course: Course | undefined;

  constructor(options: Record<string, unknown>) {
    this.#o = readOptions(options);
    this.#file = scriptFile(this.#o.script);
    const lenient = this.#o.confirm === 'lenient' ? ', lenient' : '';
    this.kind = `scripted ${this.#file.version} ${this.#o.style}${lenient}`;
  }

  start(o: UserStart): void {
    const refused = refusesTask(o.domain, o.taskId, this.#o.script === undefined ? {} : { script: this.#o.script });
    if (refused !== undefined) {
      throw new ActorsError('SINKFLEX_ENVIRONMENT_OPTION', `user=scripted: no user for task ${o.taskId} of ${o.domain}: ${refused}`, {
        details: { option: 'user', task: o.taskId },
      });
    }
    this.#course = new Course(this.#file.scripts.get(o.taskId)!, o, new Voice(this.#o.style, o.seed), this.#o.confirm === 'strict');
  }

  reply(incoming: readonly Message[]): UserTurn {
    if (!this.#course) throw new Error('scripted user: reply before start');
    return { text: this.#course.reply(incoming.map((m) => m.content).join('\n')) };
  }

  close(): void {
    this.#course = undefined;
  }
}

class Course {
  readonly #script: UserScript;
  readonly #calls: readonly ExecutedCall[];
  readonly #voice: Voice;
  readonly #strict: boolean;
  readonly #wishes: Wish[];
  readonly #told: readonly string[];
  /** What the agent has said, as the evaluator reads it. */
  #heard: string[] = [];
  #greeted = false;
  /** Sentences that come up by themselves, in order. */
  readonly #agenda: string[];
  readonly #refused: string[];
  readonly #twist: string[];
  /** What the user has asked for so far; said again when it is misunderstood. */
  readonly #request: string[] = [];
  readonly #used = new Map<string, number>();
  #late: boolean;
  #gaveUp = false;
  #lost = 0;

  constructor(script: UserScript, o: UserStart, voice: Voice, strict: boolean) {
    this.#script = script;
    this.#calls = o.calls;
    this.#voice = voice;
    this.#strict = strict;
    if (!o.reference) throw new Error('user=scripted: the environment gives no reference to keep to');
    const { writes, told } = o.reference();
    this.#wishes = writes;
    this.#told = told;
    this.#agenda = [...script.open, ...(script.more ?? [])];
    this.#refused = [...(script.refused ?? [])];
    this.#twist = [...(script.twist ?? [])];
    this.#late = script.later === undefined;
  }

  reply(said: string): string {
    this.#heard.push(said.toLowerCase().replaceAll(',', ''));
    if (this.#calls.some((c) => c.call.name === 'transfer_to_human_agents' && !c.error)) return TRANSFER;
    const reading = readAgent(said);
    if (!this.#greeted) return this.#open(reading);
    const answer = this.#answer(said, reading);
    if (answer !== undefined) {
      this.#lost = 0;
      return answer;
    }
    this.#lost++;
    return this.#lost >= PATIENCE ? LOST : this.#voice.say(...this.#reminder());
  }

  /** The first message of the user. */
  #open({ identity }: Reading): string {
    this.#greeted = true;
    const many = this.#voice.style === 'terse' ? 1 : this.#script.open.length;
    return this.#voice.say('Hello.', ...this.#next(many), identity ? this.#identity(identity) : '');
  }

  /** Undefined: the agent said nothing that leads on. */
  #answer(said: string, reading: Reading): string | undefined {
    const voice = this.#voice;
    if (reading.identity && !this.#known()) return voice.say(this.#identity(reading.identity));
    if (!this.#late && this.#pending().length === 0) {
      this.#late = true;
      this.#remember(this.#script.later!.say);
      return voice.say(this.#script.later!.say);
    }
    if (reading.confirms) return this.#confirm(said, reading);
    if (reading.refuses) {
      const next = this.#refused.shift();
      if (next !== undefined) {
        this.#remember(next);
        return voice.say(next);
      }
      this.#gaveUp = true;
    }
    if (this.#content()) return STOP;
    const slots = reading.slots.map((slot) => this.#slot(slot)).filter((s) => s !== undefined);
    if (slots.length > 0) return voice.say(...new Set(slots));
    if (this.#agenda.length > 0) return voice.say(...this.#next(1));
    if (!this.#hasHeard() && this.#pending().length === 0 && this.#script.ask !== undefined && this.#once('ask'))
      return voice.say(this.#script.ask);
    if (reading.offers && this.#once('reminder')) return voice.say(...this.#reminder());
    return undefined;
  }

  #confirm(said: string, reading: Reading): string {
    const voice = this.#voice;
    const twist = this.#twist.shift();
    if (twist !== undefined) {
      this.#remember(twist);
      return voice.say(twist);
    }
    const open = this.#pending();
    if (agrees(said, open, { strict: this.#strict, known: knowledge(this.#calls) })) {
      const pay = reading.slots.includes('pay') && !/\b(credit_card|gift_card|paypal)_\d+/.test(said) ? this.#slot('pay') : undefined;
      return voice.say(voice.yes, pay ?? '');
    }
    if (this.#content()) return voice.say(voice.no.replace(/^(No)\b.*$/, '$1, thank you, that is all.'));
    return voice.say(voice.no, ...this.#reminder());
  }

  /** All that was wanted is done and heard, or the agent has said for good that it cannot. */
  #content(): boolean {
    if (this.#agenda.length > 0 || !this.#late) return false;
    if (this.#pending().some((w) => w.works)) return false;
    if (!this.#hasHeard()) return false;
    // With nothing that can be done or has to be heard, a refusal settles it, or that it was tried.
    const tried = this.#wishes.length > 0 && this.#pending().length === 0;
    return tried || this.#wishes.some((w) => w.works) || this.#told.length > 0 || this.#gaveUp;
  }

  /** Wishes that have come up and that no call has met. */
  #pending(): Wish[] {
    const wishes = this.#late ? this.#wishes : this.#wishes.slice(0, this.#script.later!.from);
    const done = this.#calls.filter((c) => c.writes);
    // A call meets one wish: the same change may be wanted twice.
    const left = [...wishes];
    for (const { call, error } of done) {
      const at = left.findIndex((wish) => (!error || !wish.works) && fulfils(call, wish));
      if (at >= 0) left.splice(at, 1);
    }
    return left;
  }

  #hasHeard(): boolean {
    return this.#told.every((info) => this.#heard.some((text) => text.includes(info.toLowerCase())));
  }

  #known(): boolean {
    return this.#calls.some((c) => !c.error && /^(find_user_id|get_user_details)/.test(c.call.name));
  }

  #identity(asked: { email: boolean; name: boolean; user: boolean }): string {
    const { name, zip, email, email2, user } = this.#script.who;
    const parts: string[] = [];
    if (asked.email && email === undefined) parts.push('I do not remember my email address.');
    if (email !== undefined && (asked.email || !asked.name))
      parts.push(`My email is ${email}${email2 === undefined ? '' : ` or ${email2}`}.`);
    if (user !== undefined && asked.user) parts.push(`My user id is ${user}.`);
    if (name !== undefined && (asked.name || parts.every((p) => p.startsWith('I do not')))) {
      const code = Array.isArray(zip) ? this.#step('zip', zip) : zip;
      parts.push(code === undefined ? `My name is ${name}.` : `My name is ${name}, my zip code is ${code}.`);
    }
    return parts.join(' ');
  }

  #slot(slot: Slot): string | undefined {
    const script = this.#script;
    const wishes = this.#pending();
    switch (slot) {
      case 'order':
        return script.order ? this.#step('order', script.order) : 'I do not know the order number.';
      case 'pay':
        if (script.pay) return this.#step('pay', script.pay);
        return wishes.some((w) => w.arguments.payment_method_id !== undefined) ? 'The way I paid before.' : undefined;
      case 'reason': {
        if (script.reason) return this.#step('reason', script.reason);
        const reason = wishes.find((w) => w.arguments.reason !== undefined)?.arguments.reason;
        if (reason === undefined) return undefined;
        return reason === 'ordered by mistake' ? 'It was ordered by mistake.' : 'It is no longer needed.';
      }
      case 'address':
        return script.address ? this.#step('address', script.address) : undefined;
      case 'which':
        return script.which ?? (wishes.length > 0 && this.#once('which') ? this.#request.join(' ') : undefined);
    }
  }

  /** The next sentences of the agenda. */
  #next(many: number): string[] {
    const sentences = this.#agenda.splice(0, many);
    this.#remember(...sentences);
    return sentences;
  }

  #remember(...sentences: string[]): void {
    this.#request.push(...sentences.filter((s) => !this.#request.includes(s)));
  }

  /** What is wanted, again. */
  #reminder(): string[] {
    if (this.#agenda.length > 0) return this.#next(1);
    return this.#request;
  }

  #step(key: string, of: readonly string[]): string {
    const used = this.#used.get(key) ?? 0;
    this.#used.set(key, used + 1);
    return of[Math.min(used, of.length - 1)]!;
  }

  #once(key: string): boolean {
    if (this.#used.has(key)) return false;
    this.#used.set(key, 1);
    return true;
  }
}

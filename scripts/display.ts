// Progress of a run on a terminal (bars) or in a log (a line now and then), from the events of the dataflow.
import cliProgress, { type SingleBar } from 'cli-progress';
import type { Phase, ProgressEvent, ProgressNumbers } from '../actors/index.ts';
import { duration, thousands } from './text.ts';

/** What a display writes to: process.stderr, or a stand-in of a test. */
export interface Output {
  write(text: string): unknown;
  isTTY?: boolean;
  columns?: number;
}

export interface DisplayOptions {
  output?: Output;
  now?: () => number;
  /** Least time between two lines of one phase in a log. */
  lineIntervalMs?: number;
  /** Warnings only. */
  quiet?: boolean;
}

interface Running {
  label: string;
  total: number;
  startedMs: number;
  budgetSeconds: number | undefined;
  done: number;
  printedMs: number;
  numbers: ProgressNumbers;
}

const NUMBER_FORMATS: readonly [name: keyof ProgressNumbers & string, text: (value: number) => string][] = [
  ['score', (v) => `score ${v.toFixed(3)}`],
  ['val', (v) => `val ${v.toFixed(3)}`],
  ['loss', (v) => `loss ${v.toFixed(3)}`],
  ['val loss', (v) => `val loss ${v.toFixed(3)}`],
  ['tokensPerSecond', (v) => `${thousands(v)} trained tokens/s`],
  ['staleness', (v) => `staleness ${v.toFixed(2)}`],
];

export class Display {
  readonly #output: Output;
  readonly #now: () => number;
  readonly #interval: number;
  readonly #quiet: boolean;
  readonly #startedMs: number;
  readonly #running = new Map<Phase, Running>();
  /** The bar of the innermost phase; drawn on terminals only. */
  #bar: SingleBar | undefined;
  #actors = '';

  constructor(o: DisplayOptions = {}) {
    this.#output = o.output ?? process.stderr;
    this.#now = o.now ?? Date.now;
    this.#interval = o.lineIntervalMs ?? 5000;
    this.#quiet = o.quiet ?? false;
    this.#startedMs = this.#now();
  }

  readonly listen = (event: ProgressEvent): void => {
    if (this.#quiet && !(event.kind === 'note' && event.level === 'warning')) return;
    switch (event.kind) {
      case 'begin':
        this.#begin(event.phase, event.total, event.label, event.budgetSeconds);
        break;
      case 'advance':
        this.#advance(event.phase, event.done, event.numbers);
        break;
      case 'end':
        this.#end(event.phase, event.seconds, event.numbers);
        break;
      case 'actors':
        this.#actors = actorsText(event.states);
        break;
      case 'note':
        this.line(event.level === 'warning' ? `warning: ${event.text}` : event.text);
    }
  };

  /** A line of its own, above the bar. */
  line(text: string): void {
    this.#hide();
    this.#output.write(`${this.#clock()} ${text}\n`);
    this.#show();
  }

  close(): void {
    this.#hide();
    this.#running.clear();
  }

  #begin(phase: Phase, total: number, label: string | undefined, budgetSeconds: number | undefined): void {
    const name = label ? `${phase} ${label}` : phase;
    const now = this.#now();
    this.#running.set(phase, { label: name, total, startedMs: now, budgetSeconds, done: 0, printedMs: now, numbers: {} });
    if (this.#output.isTTY && total > 0) {
      this.#hide();
      this.#show();
    } else this.line(`${name}${total > 0 ? ` (${thousands(total)})` : ''} ...`);
  }

  #advance(phase: Phase, done: number, numbers: ProgressNumbers | undefined): void {
    const running = this.#running.get(phase);
    if (!running) return;
    running.done = done;
    running.numbers = { ...running.numbers, ...numbers };
    const now = this.#now();
    const details = this.#details(running, now);
    if (this.#bar) {
      if (running === this.#innermost()) this.#bar.update(done, { count: `${done}/${running.total}`, details });
    } else if (now - running.printedMs >= this.#interval) {
      running.printedMs = now;
      this.line(`${running.label} ${done}${running.total > 0 ? `/${running.total}` : ''}${details ? ` · ${details}` : ''}`);
    }
  }

  #end(phase: Phase, seconds: number, numbers: ProgressNumbers | undefined): void {
    const running = this.#running.get(phase);
    if (!running) return;
    const details = describe({ ...running.numbers, ...numbers });
    const count = running.done > 0 && running.done < running.total ? [`${running.done} of ${running.total}`] : [];
    this.#hide();
    this.#running.delete(phase);
    this.line([`${running.label}: ${duration(seconds)}`, ...count, ...details].join(' · '));
  }

  #innermost(): Running | undefined {
    return [...this.#running.values()].filter((r) => r.total > 0).at(-1);
  }

  #show(): void {
    const running = this.#innermost();
    if (!this.#output.isTTY || this.#bar || !running) return;
    this.#bar = new cliProgress.SingleBar(
      {
        stream: this.#output as NodeJS.WritableStream,
        format: '{label} {bar} {count} {details}',
        barsize: 24,
        hideCursor: true,
        clearOnComplete: true,
        linewrap: false,
        fps: 8,
        gracefulExit: false,
      },
      cliProgress.Presets.shades_classic,
    );
    const details = this.#details(running, this.#now());
    this.#bar.start(running.total, running.done, { label: running.label.padEnd(12), count: `${running.done}/${running.total}`, details });
  }

  #details(running: Running, now: number): string {
    return [...describe(running.numbers), ...(this.#actors ? [this.#actors] : []), ...remaining(running, now)].join(' · ');
  }

  #hide(): void {
    this.#bar?.stop();
    this.#bar = undefined;
  }

  /** [mm:ss] since the start. */
  #clock(): string {
    const seconds = Math.floor((this.#now() - this.#startedMs) / 1000);
    return `[${String(Math.floor(seconds / 60)).padStart(2, '0')}:${String(seconds % 60).padStart(2, '0')}]`;
  }
}

/** All alive in two words; whoever is not, by name. The dead of a run that goes on have been told. */
function actorsText(states: readonly { name: string; state: string }[]): string {
  const living = states.filter(({ state }) => state !== 'dead');
  const other = living.filter(({ state }) => state !== 'alive').map(({ name, state }) => `${name} ${state}`);
  const few = other.length > 3 ? [...other.slice(0, 3), `${other.length - 3} more`] : other;
  return [`${living.length - other.length} actors alive`, ...few].join(', ');
}

function describe(numbers: ProgressNumbers): string[] {
  return NUMBER_FORMATS.flatMap(([name, text]) => {
    const value = numbers[name];
    return value === undefined || Number.isNaN(value) ? [] : [text(value)];
  });
}

/** Time left by the pace so far, at most what the budget leaves. */
function remaining(r: Running, now: number): string[] {
  const elapsed = (now - r.startedMs) / 1000;
  if (r.done <= 0 || r.total <= 0 || elapsed < 1) return [];
  const byPace = (elapsed / r.done) * (r.total - r.done);
  const left = r.budgetSeconds === undefined ? byPace : Math.min(byPace, Math.max(0, r.budgetSeconds - elapsed));
  return [`${duration(left)} left`];
}

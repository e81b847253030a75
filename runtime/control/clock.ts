// Time, as the control plane has it: passed in, so that the same code runs on a virtual clock in a simulation.

export interface Clock {
  /** Milliseconds since 1970, never going back. */
  now(): number;
  /** Runs the action once; answers what cancels it. `idle`: not worth keeping the process alive for. */
  after(ms: number, action: () => void, idle?: boolean): () => void;
}

export const systemClock: Clock = {
  now: Date.now,
  after(ms, action, idle = false) {
    const timer = setTimeout(action, ms);
    if (idle) timer.unref();
    return () => clearTimeout(timer);
  },
};

/** Resolves when the time is up, or at the call of what it answers beside. */
export function deadline(clock: Clock, ms: number): { over: Promise<void>; clear: () => void } {
  let clear = (): void => {};
  const over = new Promise<void>((resolve) => {
    const cancel = clock.after(ms, resolve);
    clear = () => {
      cancel();
      resolve();
    };
  });
  return { over, clear };
}

// Ctrl-C: the first asks the run to end itself, which it does within two seconds; the second, or the end of that time, ends the process.

/** How long a run may take to end itself. */
const GRACE_MS = 2000;
const EXIT_CODES = { SIGINT: 130, SIGTERM: 143, SIGHUP: 129 } as const;

export interface StopSignal {
  signal: AbortSignal;
  /** Gives the signals back to Node. */
  dispose(): void;
}

/** Process workers die with this process (death signal), so leaving is always safe. */
export function stopSignal(write: (text: string) => unknown = (text) => process.stderr.write(text), graceMs = GRACE_MS): StopSignal {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const listeners = Object.entries(EXIT_CODES).map(([name, exitCode]) => {
    const listener = () => {
      if (controller.signal.aborted) process.exit(exitCode);
      write('\nstopping (again: at once)\n');
      timer = setTimeout(() => process.exit(exitCode), graceMs - 200);
      timer.unref();
      process.exitCode = exitCode;
      controller.abort(new Error(`stopped by ${name}`));
    };
    process.on(name, listener);
    return { name, listener };
  });
  return {
    signal: controller.signal,
    dispose() {
      for (const { name, listener } of listeners) process.off(name, listener);
      if (!controller.signal.aborted) clearTimeout(timer);
    },
  };
}

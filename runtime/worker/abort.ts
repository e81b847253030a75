// Many that wait for one AbortSignal, behind one listener of it. Signals are made for a few listeners: Node warns of a leak at the eleventh,
// and each one more is compared with all that are there.

interface Waiting {
  callbacks: Set<() => void>;
  listener: () => void;
}

const bySignal = new WeakMap<AbortSignal, Waiting>();

/**
 * Calls back once, when the signal is aborted; the answer is how to stop waiting. The signal has one listener while anybody waits, and none
 * when the last one has gone. A signal that is aborted already never calls back: look at it first.
 *
 * @example
 * const stopWaiting = onAbort(currentActor().signal, () => child.kill());
 * try { await once(child, 'close'); } finally { stopWaiting(); }
 */
export function onAbort(signal: AbortSignal, callback: () => void): () => void {
  const waiting = bySignal.get(signal) ?? listen(signal);
  // A function of its own, since the same callback may wait twice.
  const entry = (): void => callback();
  waiting.callbacks.add(entry);
  return () => {
    if (!waiting.callbacks.delete(entry) || waiting.callbacks.size > 0 || bySignal.get(signal) !== waiting) return;
    bySignal.delete(signal);
    signal.removeEventListener('abort', waiting.listener);
  };
}

function listen(signal: AbortSignal): Waiting {
  const callbacks = new Set<() => void>();
  const listener = (): void => {
    bySignal.delete(signal);
    for (const call of callbacks) call();
  };
  const waiting = { callbacks, listener };
  bySignal.set(signal, waiting);
  signal.addEventListener('abort', listener, { once: true });
  return waiting;
}

// A worker's sign of life: a number in shared memory that its event loop counts up, for the agent's monitor to see.
import { SharedMemory } from '../../kernels/host.ts';
import type { TickCell } from '../control/index.ts';

/** Kept for as long as this worker lives. */
let mapped: SharedMemory | undefined;

/** What the loop calls at each turn of its timer. Has ticked once already: from now on a loop that does not turn is noticed. */
export function ticker({ address, offset }: TickCell): () => void {
  mapped = SharedMemory.open(address);
  const view = mapped.view(offset, 4);
  const cell = new Int32Array(view.buffer, view.byteOffset, 1);
  let count = 0;
  const tick = (): void => {
    count = (count % 0x7fffffff) + 1; // never 0: that means that nobody has ticked yet
    Atomics.store(cell, 0, count);
  };
  tick();
  return tick;
}

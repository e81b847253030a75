// Bundles of placement groups that this node holds, promised or in use. Says the same to the head after a reconnection, so that both agree
// again.
import type { FromHead, Join } from '../control/index.ts';

export class HeldBundles {
  readonly #held = new Map<string, Join['bundles'][number]>();

  prepare({ group, attempt, bundles }: Extract<FromHead, { t: 'prepare' }>): void {
    for (const { bundle } of bundles) this.#held.set(`${bundle} ${attempt} ${group}`, { group, attempt, bundle });
  }

  release({ group, attempt, bundles }: Extract<FromHead, { t: 'release' }>): void {
    for (const bundle of bundles) this.#held.delete(`${bundle} ${attempt} ${group}`);
  }

  list(): Join['bundles'] {
    return [...this.#held.values()];
  }
}

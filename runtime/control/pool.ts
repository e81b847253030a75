// What a node, or a bundle of a placement group, has to give. Amounts are integers (amounts.ts). GPUs are devices with numbers: whole ones
// go to one taker, a part shares a device with other parts.
import { type Needs, STEPS } from './amounts.ts';

interface Device {
  readonly id: number;
  /** Steps that this pool has of it, and those that are free. */
  readonly size: number;
  free: number;
}

/** [number of the GPU, steps of it] */
export type TakenGpu = readonly [id: number, amount: number];

const NO_GPUS: readonly TakenGpu[] = [];

export class Pool {
  /** Sorted. */
  readonly names: readonly string[];
  readonly total: readonly number[];
  readonly free: number[];
  readonly devices: readonly Device[];

  constructor(names: readonly string[], total: readonly number[], gpus: readonly TakenGpu[]) {
    this.names = names;
    this.total = total;
    this.free = [...total];
    this.devices = gpus.map(([id, size]) => ({ id, size, free: size }));
  }

  /** Would it fit if nothing else were there? */
  couldHold(needs: Needs): boolean {
    for (let i = 0; i < needs.names.length; i++) {
      const at = this.names.indexOf(needs.names[i]!);
      if (at < 0 || this.total[at]! < needs.amounts[i]!) return false;
    }
    return this.#devicesFor(needs, (device) => device.size) !== undefined;
  }

  fits(needs: Needs): boolean {
    for (let i = 0; i < needs.names.length; i++) {
      const at = this.names.indexOf(needs.names[i]!);
      if (at < 0 || this.free[at]! < needs.amounts[i]!) return false;
    }
    return (needs.whole === 0 && needs.part === 0) || this.#devicesFor(needs, (device) => device.free) !== undefined;
  }

  /** The GPUs that it got, or undefined, and then nothing has changed. */
  take(needs: Needs): readonly TakenGpu[] | undefined {
    if (!this.fits(needs)) return undefined;
    const gpus = this.#devicesFor(needs, (device) => device.free)!;
    this.retake(needs, gpus);
    return gpus;
  }

  /** Takes exactly that again, as a snapshot says. */
  retake(needs: Needs, gpus: readonly TakenGpu[]): void {
    this.#move(needs, gpus, -1);
  }

  give(needs: Needs, gpus: readonly TakenGpu[]): void {
    this.#move(needs, gpus, 1);
  }

  #move(needs: Needs, gpus: readonly TakenGpu[], sign: 1 | -1): void {
    for (let i = 0; i < needs.names.length; i++) this.free[this.names.indexOf(needs.names[i]!)]! += sign * needs.amounts[i]!;
    for (const [id, amount] of gpus) this.devices.find((device) => device.id === id)!.free += sign * amount;
  }

  /** The part goes to the fullest device that has room, so that whole ones stay whole; whole ones by lowest number. */
  #devicesFor(needs: Needs, room: (device: Device) => number): readonly TakenGpu[] | undefined {
    if (needs.whole === 0 && needs.part === 0) return NO_GPUS;
    let shared: Device | undefined;
    if (needs.part > 0) {
      for (const device of this.devices) {
        if (room(device) >= needs.part && (shared === undefined || room(device) < room(shared))) shared = device;
      }
      if (shared === undefined) return undefined;
    }
    const taken: TakenGpu[] = [];
    for (const device of this.devices) {
      if (taken.length === needs.whole) break;
      if (device !== shared && room(device) >= STEPS) taken.push([device.id, STEPS]);
    }
    if (taken.length < needs.whole) return undefined;
    if (shared !== undefined) taken.push([shared.id, needs.part]);
    return taken.sort((a, b) => a[0] - b[0]);
  }

  wholeFree(): number {
    let count = 0;
    for (const device of this.devices) if (device.free >= STEPS) count++;
    return count;
  }

  largestPart(): number {
    let most = 0;
    for (const device of this.devices) most = Math.max(most, device.free);
    return most;
  }

  /** Share in use of the resource that is used most: 0 to 1. */
  utilisation(): number {
    let most = 0;
    for (let i = 0; i < this.total.length; i++) {
      if (this.total[i]! > 0) most = Math.max(most, 1 - this.free[i]! / this.total[i]!);
    }
    return most;
  }
}

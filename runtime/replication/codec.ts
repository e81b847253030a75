// How one region of a slot travels: as it is, or as what brings the version that the other host has to the next one. A codec that knows
// better than sending all of it fits in here.

export interface RegionCodec {
  /** Both sides must have the same. */
  readonly name: string;
  /** What turns `base` into `next`, or undefined if that is not smaller than `next` itself. Both have the same size. */
  encode(base: Uint8Array, next: Uint8Array): Uint8Array | undefined;
  /** `region` holds the base, and then the next. Throws if the bytes are not what encode() made. */
  apply(region: Uint8Array, change: Uint8Array): void;
}

/** Regions that did not change are not sent; all others are sent whole. */
export const changedRegions: RegionCodec = {
  name: 'changed',
  encode: (base, next) => (Buffer.compare(base, next) === 0 ? new Uint8Array() : undefined),
  apply(_, change) {
    if (change.length > 0) throw new RangeError('a change where none can be');
  },
};

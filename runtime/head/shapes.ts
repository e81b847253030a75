// Shapes of plain data: small checks that are put together, for what others say.

/** Whether a value is what it should be. */
export type Shape = (value: unknown) => boolean;

export const text: Shape = (value) => typeof value === 'string' && value.length <= 65_536;
export const flag: Shape = (value) => typeof value === 'boolean';
export const amount: Shape = (value) => typeof value === 'number' && Number.isFinite(value) && value >= 0;
/** Or none. */
export const limit: Shape = (value) => typeof value === 'number' && value >= 0;
export const whole: Shape = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
/** Also below 0. */
export const integer: Shape = (value) => Number.isSafeInteger(value);
export const bytes: Shape = (value) => value instanceof Uint8Array;
export const anything: Shape = () => true;

export const isRecord = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value);

export const one =
  (...values: unknown[]): Shape =>
  (value) =>
    values.includes(value);

export const optional =
  (shape: Shape): Shape =>
  (value) =>
    value === undefined || shape(value);

export const either =
  (...shapes: Shape[]): Shape =>
  (value) =>
    shapes.some((shape) => shape(value));

export const list =
  (shape: Shape): Shape =>
  (value) =>
    Array.isArray(value) && value.length <= 1_000_000 && value.every(shape);

export const pair =
  (first: Shape, second: Shape): Shape =>
  (value) =>
    Array.isArray(value) && value.length === 2 && first(value[0]) && second(value[1]);

/** Of any keys. */
export const record =
  (shape: Shape): Shape =>
  (value) =>
    isRecord(value) && Object.values(value).every(shape);

/** With at least these fields. */
export const fields = (shapes: Record<string, Shape>): Shape => {
  const all = Object.entries(shapes);
  return (value) => isRecord(value) && all.every(([name, shape]) => shape(value[name]));
};

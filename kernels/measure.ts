// What the machine's arithmetic can do, and what a linear layer makes of it: for benches.
import { callNative } from './errors.ts';
import { addon } from './native.ts';

export interface LinearMeasurement {
  /** On the wall. */
  seconds: number;
  /** Of the calling thread. */
  cpuSeconds: number;
}

const native = addon as unknown as {
  measureFmaPeak(): number;
  measureLinear(rows: number, input: number, output: number, threads: number): LinearMeasurement;
};

/** Float32 operations a second (an fma is two) that one core does out of registers, by processor time of the calling thread. Takes some 10 ms. */
export function measureFmaPeak(): number {
  return callNative(() => native.measureFmaPeak());
}

/** One y[rows, out] = x[rows, in] w[out, in]^T of the engine's operator, after one that warms up. */
export function measureLinear(o: { rows: number; in: number; out: number; threads: number }): LinearMeasurement {
  return callNative(() => native.measureLinear(o.rows, o.in, o.out, o.threads));
}

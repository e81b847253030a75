// The whole model of a store of adapters: an image of the model below to which their products are added.

import { parts } from './image-file.ts';
import { type LoraConfig, mergeLora } from './lora.ts';
import type { ModelConfig } from './model-config.ts';
import { expertSlices } from './mxfp4.ts';
import type { Slot } from './segment.ts';
import { SharedMemory } from './shared-memory.ts';
import { SlotTensors } from './slot-tensors.ts';
import { type TensorLayout, tensorLayout, type WeightDtype } from './tensor-layout.ts';

/** Values of experts widened at once. */
const AT_ONCE = 2 ** 20;

/** The caller releases the image. Experts in MXFP4 come out in bfloat16: sums are not rounded to four bits. */
export function mergedImage(o: {
  config: ModelConfig;
  lora: LoraConfig;
  adapter: (name: string) => Float32Array;
  base: { layout: TensorLayout; dtype: WeightDtype; slot: Slot };
}): { image: SharedMemory; dtype: WeightDtype } {
  const { config, base } = o;
  const dtype = base.dtype === 'mxfp4' ? 'bfloat16' : base.dtype;
  const layout = dtype === base.dtype ? base.layout : tensorLayout(config, undefined, dtype);
  const image = SharedMemory.create(layout.totalBytes);
  try {
    const whole = new SlotTensors(layout, (offset, bytes) => image.view(offset, bytes));
    if (layout === base.layout) for (const [at, bytes] of parts(layout.totalBytes)) image.write(at, base.slot.view(at, bytes));
    else {
      image.write(0, layout.header);
      const below = new SlotTensors(base.layout, (offset, bytes) => base.slot.view(offset, bytes));
      for (const t of base.layout.tensors)
        for (const [from, to] of t.dtype === 'MXFP4' ? expertSlices(t.shape, AT_ONCE) : [[0, t.count] as const])
          whole.editNamed(t.name, (data) => data.set(below.read(t, from, to)), from, to);
    }
    mergeLora(config, o.lora, o.adapter, (name, edit) => whole.editNamed(name, edit));
    return { image, dtype };
  } catch (e) {
    image.release();
    throw e;
  }
}

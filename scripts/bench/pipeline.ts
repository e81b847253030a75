// Suite `pipeline`: one GRPO step against the textbook loop, the flip of a weight version, and what asynchrony pays.
import { asyncOverSync } from './async-over-sync.ts';
import { flip } from './flip.ts';
import type { Suite } from './rows.ts';
import { textbookStep } from './textbook-step.ts';

export const pipelineSuite: Suite = {
  'pipeline.step.textbook': textbookStep,
  'pipeline.flip.1mb': (context) => flip(context, '1mb'),
  'pipeline.flip.1gb': (context) => flip(context, '1gb'),
  'pipeline.async_over_sync': asyncOverSync,
};

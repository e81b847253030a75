// The one error of settings: everything that is wrong at once.
import { SinkflexError } from '../../kernels/index.ts';

/** The settings of a run are wrong. `details.problems` has one line for each. */
export class ConfigError extends SinkflexError {
  constructor(problems: readonly string[]) {
    const list = problems.map((p) => `  - ${p}`).join('\n');
    super(
      'SINKFLEX_SETTINGS',
      `${problems.length === 1 ? 'a setting is' : `${problems.length} settings are`} wrong:\n${list}\nAll settings: docs/configuration.md; what a run would use: sinkflex launch --dry-run`,
      {
        details: { problems: [...problems] },
      },
    );
    this.name = 'ConfigError';
  }
}

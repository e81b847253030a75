// The configuration of a training run: schema, layers, description.

export { describeConfig, type Setting, settings } from './config-describe.ts';
export { ConfigError, type ConfigLayer, loadConfig, parseConfig, parseOverrides, readConfigFile } from './config-parse.ts';
export { TrainingConfig } from './config-schema.ts';

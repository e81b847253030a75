// The configuration of a training run: schema, layers, description.

export { type Setting, settings, settingsSchema } from './config-describe.ts';
export { ConfigError } from './config-error.ts';
export { type ConfigLayer, readConfigFile } from './config-file.ts';
export { loadConfig, parseConfig, parseOverrides } from './config-parse.ts';
export { TrainingConfig } from './config-schema.ts';

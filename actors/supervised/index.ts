/** Supervised fine-tuning on files of examples. */
export { type ExampleReader, type Examples, readExamples } from './examples.ts';
export { type FineTuneOptions, type FineTuneResult, fineTune } from './fine-tune.ts';

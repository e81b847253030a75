// `sinkflex sft`: supervised fine-tuning of a model folder on a file of examples.
import { availableParallelism } from 'node:os';
import { basename, join } from 'node:path';
import { Command, Option } from 'commander';
import { type FineTuneOptions, fineTune } from '../actors/index.ts';
import { SinkflexError, weightDtypes } from '../kernels/index.ts';
import { Display } from './display.ts';
import { CommandError } from './errors.ts';
import { modelFolderOf } from './model-folder.ts';
import { between, deviceOption, wholeNumber } from './option-values.ts';
import { stopSignal } from './stop-signal.ts';
import { duration, table, thousands } from './text.ts';

type SftOptions = Omit<FineTuneOptions, 'train' | 'model' | 'output' | 'betas'> & { model: string; output?: string; json?: boolean };

export function sftCommand(): Command {
  return new Command('sft')
    .summary('fine-tune a model on examples')
    .description(
      'Learns from JSON lines: chats ({"messages": [...]}: what the assistant says is learnt), {"prompt", "completion"}, or {"text"}.\n' +
        'Writes metrics, checkpoints and, at the end, <output>/model, a folder that transformers opens and that launch takes as model.path.',
    )
    .argument('<train>', 'file of examples, one JSON object a line')
    .requiredOption(
      '-m, --model <folder>',
      'a Hugging Face folder with its tokenizer, org/name of the hub, a run folder, or one of its checkpoints',
    )
    .option('--val <file>', 'examples that are only measured')
    .option('-o, --output <folder>', 'default runs/<utc>-sft-<name of the file>')
    .option('--resume', 'go on from the last checkpoint in --output')
    .option('--epochs <n>', 'passes over the examples', wholeNumber(1), 3)
    .option('--batch-size <n>', 'examples of one step', wholeNumber(1), 16)
    .option('--lr <number>', 'learning rate after warm-up', between(0, 1), 1e-5)
    .option('--warmup-ratio <share>', 'share of the steps in which the learning rate rises', between(0, 1), 0.03)
    .addOption(new Option('--schedule <kind>', 'course of the learning rate').choices(['constant', 'linear', 'cosine']).default('cosine'))
    .option('--min-lr-ratio <share>', 'what is left of it at the end', between(0, 1), 0)
    .option('--weight-decay <number>', 'not applied to norms and biases', between(0, 10), 0.01)
    .option('--grad-clip <norm>', '0: none', between(0, 1e9), 1)
    .option('--max-length <tokens>', 'of an example', wholeNumber(2), 1024)
    .addOption(new Option('--truncation <how>', 'what is done with longer ones').choices(['error', 'right', 'drop']).default('error'))
    .option('--micro-batch-tokens <n>', 'tokens of one pass forward and backward', wholeNumber(1), 4096)
    .option('--gradient-checkpointing', 'keep only the inputs of the layers: less memory, about a third more work, the same bits')
    .option('--lora-rank <n>', 'learn LoRA adapters of this rank over the frozen model; 0: all weights', wholeNumber(0), 0)
    .option('--lora-alpha <number>', 'the adapters are scaled by alpha / rank', between(0, 1e6), 16)
    .option(
      '--target-modules <names...>',
      'layers with adapters: all-linear, experts, or some of q_proj k_proj v_proj o_proj gate_proj up_proj down_proj',
      ['all-linear'],
    )
    .addOption(
      new Option(
        '--dtype <name>',
        'what matrices are stored in; bfloat16 steps round stochastically, mxfp4 is for frozen experts below adapters',
      )
        .choices(weightDtypes)
        .default('float32'),
    )
    .addOption(
      new Option('--optim <name>', 'adamw_8bit keeps its moments in 2 bytes a parameter, not 8')
        .choices(['adamw', 'adamw_8bit'])
        .default('adamw'),
    )
    .option('--router-aux-loss-coef <number>', "weight of the router's load-balancing loss, for models with experts", between(0, 1e6), 0)
    .option('--save-steps <n>', 'steps between checkpoints; 0: the last only', wholeNumber(0), 0)
    .option('--val-steps <n>', 'steps between validations; 0: at the end of each epoch', wholeNumber(0), 0)
    .option('--seed <n>', 'of the order of the examples', wholeNumber(0), 1)
    .option('--threads <n>', 'default all processors', wholeNumber(1), availableParallelism())
    .addOption(deviceOption())
    .option('--json', 'print the result as one JSON line')
    .addHelpText(
      'after',
      '\nExample\n  sinkflex sft chats.jsonl --model ./Qwen2.5-0.5B-Instruct --val held-out.jsonl --epochs 2 --lr 2e-5\n',
    )
    .action(sft);
}

async function sft(train: string, { model, output, json, ...o }: SftOptions): Promise<void> {
  if (o.resume === true && output === undefined)
    throw new CommandError('SINKFLEX_USAGE', '--resume needs the --output of the run to go on with');
  const display = new Display();
  const stop = stopSignal();
  const stamp = new Date().toISOString().replaceAll(/[-:]|\.\d+/g, '');
  const folder = output ?? join('runs', `${stamp}-sft-${basename(train).replace(/\.[^.]*$/, '')}`);
  try {
    const r = await fineTune({
      ...o,
      train,
      model: await modelFolderOf(model, stop.signal),
      output: folder,
      resume: o.resume ?? false,
      betas: [0.9, 0.999],
      signal: stop.signal,
      onProgress: display.listen,
    });
    display.close();
    if (json) {
      process.stdout.write(`${JSON.stringify({ ...r, seed: o.seed })}\n`);
      return;
    }
    const rows = [
      ['model', r.model],
      ['steps', `${r.steps} (${thousands(r.examples)} examples, ${thousands(r.tokens)} tokens learnt from)`],
      ['loss', r.loss.toFixed(4)],
      ...(r.val === undefined ? [] : [['val loss', `${r.val.before.toFixed(4)} before, ${r.val.after.toFixed(4)} after`]]),
      ['time', duration(r.seconds)],
    ];
    process.stdout.write(`\n${table(rows, { indent: '  ' })}\n`);
  } catch (error) {
    if (stop.signal.aborted)
      throw new SinkflexError('SINKFLEX_ABORTED', `fine-tuning was stopped; --resume --output ${folder} goes on from its last checkpoint`);
    throw error;
  } finally {
    display.close();
    stop.dispose();
  }
}

// `sinkflex env new|check|list`: a skeleton of an environment with its test, and the check that any environment has to pass.
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { Command } from 'commander';
import { parse } from 'yaml';
import { checkEnvironment, entry, environmentNames, importModule } from '../actors/index.ts';
import { environmentSource, environmentTestSource } from './env-skeleton.ts';
import { CommandError } from './errors.ts';
import { table } from './text.ts';

export function envCommand(): Command {
  return new Command('env')
    .summary('make, check and list environments')
    .description('Environments: what the policy acts in.')
    .addCommand(newCommand())
    .addCommand(checkCommand())
    .addCommand(
      new Command('list').description('lists the environments that are registered').action(() => {
        const rows = environmentNames().map((name) => [name, entry(name).summary]);
        process.stdout.write(`${table([['name', 'what'], ...rows], { header: true })}\n`);
      }),
    );
}

function newCommand(): Command {
  return new Command('new')
    .description('writes a working environment with tools, and its test')
    .argument('<name>', 'small letters, digits and -')
    .option('--to <folder>', 'where to write it; a folder of that name by default')
    .action((name: string, o: { to?: string }) => {
      if (!/^[a-z][a-z0-9-]*$/.test(name)) throw new CommandError('SINKFLEX_USAGE', `"${name}" is no name: small letters, digits and -`);
      const folder = resolve(o.to ?? name);
      const files = { [`${name}.js`]: environmentSource(name), [`${name}.test.js`]: environmentTestSource(name) };
      for (const file of Object.keys(files)) {
        if (existsSync(join(folder, file)))
          throw new CommandError('SINKFLEX_USAGE', `${join(folder, file)} is there already: choose another name or --to`);
      }
      mkdirSync(folder, { recursive: true });
      for (const [file, text] of Object.entries(files)) writeFileSync(join(folder, file), text);
      const here = relative(process.cwd(), folder) || '.';
      process.stdout.write(
        `wrote ${join(here, `${name}.js`)} and its test\n` +
          `  node --test ${join(here, `${name}.test.js`)}\n  sinkflex env check ${join(here, `${name}.js`)}\n` +
          `  sinkflex launch env.module=./${join(here, `${name}.js`)} env.name=${name} model.path=<a model's folder>\n`,
      );
    });
}

function checkCommand(): Command {
  return new Command('check')
    .description(
      'plays environments and says what they do not keep: one seed one episode, nothing shared, nonsense answered, infos that are JSON',
    )
    .argument('<file>', 'a module that registers environments, or the name of one that is registered')
    .argument('[key=value ...]', 'options of the environment')
    .action(async (file: string, words: string[] | undefined) => {
      const options = optionsOf(words ?? []);
      const names = await namesOf(file);
      for (const name of names) {
        const problems = await checkEnvironment(entry(name), { options });
        for (const problem of problems) process.stdout.write(`${problem}\n`);
        process.stdout.write(problems.length === 0 ? `${name}: ok\n` : `${name}: ${problems.length} problems\n`);
        if (problems.length > 0) process.exitCode = 1;
      }
    });
}

async function namesOf(file: string): Promise<string[]> {
  if (environmentNames().includes(file)) return [file];
  const before = new Set(environmentNames());
  await importModule(file);
  const names = environmentNames().filter((name) => !before.has(name));
  if (names.length === 0)
    throw new CommandError('SINKFLEX_USAGE', `${file} registers no environment: it should call register({ name, ... })`);
  return names;
}

/** `level=2 fixes=[variants]`: values as YAML. */
function optionsOf(words: readonly string[]): Record<string, unknown> {
  const options: Record<string, unknown> = {};
  for (const word of words) {
    const at = word.indexOf('=');
    if (at < 1) throw new CommandError('SINKFLEX_USAGE', `"${word}" is no option: write key=value`);
    options[word.slice(0, at)] = parse(word.slice(at + 1));
  }
  return options;
}

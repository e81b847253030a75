#!/usr/bin/env node
// The `sinkflex` command. Everything is loaded from here, so that a missing addon is one message too, and `doctor` works without it.

const words = process.argv.slice(2);

async function run(): Promise<number> {
  let main: typeof import('./main.ts').main;
  try {
    ({ main } = await import('./main.ts'));
  } catch (error) {
    return withoutEngine(error);
  }
  return main(words);
}

/** The engine does not load. */
async function withoutEngine(error: unknown): Promise<number> {
  const { code, message } = error as { code?: string; message: string };
  if (!code?.startsWith('SINKFLEX_')) throw error;
  if (words[0] === 'doctor') {
    const { doctorCommand } = await import('./doctor.ts');
    await doctorCommand().parseAsync(words.slice(1), { from: 'user' });
    return 2;
  }
  process.stderr.write(`sinkflex: ${code}: ${message}\n(sinkflex doctor examines this machine)\n`);
  return 2;
}

process.exitCode = await run();
// Nothing may keep a finished command alive.
setTimeout(() => process.exit(), 500).unref();

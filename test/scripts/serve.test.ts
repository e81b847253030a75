// `sinkflex generate` and `sinkflex serve` in processes of their own: what they print, who may call, how they end.
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { main } from '../../scripts/main.ts';
import { writeByteModel } from '../serving/byte-model.ts';

// The test runner's hooks would triple the start of every command.
delete process.env.NODE_OPTIONS;

const entry = fileURLToPath(new URL('../../scripts/sinkflex.js', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'serve-'));
writeByteModel(folder);
t.teardown(() => rmSync(folder, { recursive: true }));

function sinkflex(words: string[], o: { input?: string } = {}) {
  const r = spawnSync(process.execPath, [entry, ...words], { encoding: 'utf8', timeout: 30_000, ...o });
  return { code: r.status, out: r.stdout, errors: r.stderr };
}

t.test('generate answers a prompt, the same for the same seed; or chats line by line', async (t) => {
  const ask = ['generate', folder, 'hello', '--json', '--seed', '3', '-n', '6', '-t', '1'];
  const first = sinkflex(ask);
  t.equal(first.code, 0, first.errors);
  const answer = JSON.parse(first.out) as { text: string; token_ids: number[]; logprobs: number[]; seed: number };
  t.match(answer, { seed: 3, finish_reason: /stop|length/ });
  t.equal(answer.token_ids.length, answer.logprobs.length);
  t.equal(sinkflex(ask).out, first.out);
  const bent = sinkflex([
    ...ask,
    '--min-p',
    '1',
    '--repetition-penalty',
    '50',
    '--ignore-eos',
    '--top-logprobs',
    '2',
    '--stop',
    'never said',
  ]);
  const { token_ids: ids, top_token_ids: top } = JSON.parse(bent.out) as { token_ids: number[]; top_token_ids: number[] };
  t.equal(new Set(ids).size, 6, 'the most likely, and none twice');
  t.equal(top.length, 12);
  const chat = sinkflex(['generate', folder, '-t', '0', '-n', '4'], { input: 'one\ntwo\n\nnever read\n' });
  t.equal(chat.code, 0, chat.errors);
  t.equal(chat.out.match(/ \[cut\]\n|\n/g)?.length, 2, 'two answers');
});

t.test('what cannot work is refused before anything is loaded', async (t) => {
  const key = join(folder, 'short.key');
  writeFileSync(key, 'abc\n');
  for (const [words, message] of [
    [['serve', join(folder, 'nowhere')], /nowhere is no model/],
    [['serve', folder, '--host', '0.0.0.0'], /not loopback.*--tls-cert/],
    [['serve', folder, '--tls-cert', 'x.pem'], /--tls-cert and --tls-key go together/],
    [['serve', folder, '--api-key-file', key], /has 3 characters; it needs 8/],
    [['serve', folder, '--port', '-1'], /integer of at least 0/],
    [['serve', folder, '--port', '65536'], /port, 0 to 65535/],
    [['sft', 'x.jsonl', '--model', folder, '--resume'], /--resume needs the --output/],
    [['generate', folder, '--json'], /--json needs a prompt/],
    [['generate', folder, 'x', '-t', 'hot'], /--temperature must be a number/],
  ] as const) {
    const written = t.capture(process.stderr, 'write');
    t.equal(await main([...words]), 2, words.join(' '));
    t.match(
      written()
        .map(({ args }) => String(args[0]))
        .join(''),
      message,
    );
    written.restore();
  }
});

async function started(child: ChildProcess): Promise<{ address: string; key: string }> {
  let address: string | undefined;
  for await (const line of createInterface({ input: child.stdout! })) {
    address = /http:\/\/127\.0\.0\.1:\d+\/v1/.exec(line)?.[0] ?? address;
    const key = /^API key: (\S+)$/.exec(line)?.[1];
    if (key !== undefined && address !== undefined) return { address, key };
  }
  throw new Error('it ended before it listened');
}

t.test('serve makes a key, answers who has it, and on Ctrl-C first ends the answer under way', async (t) => {
  const child = spawn(process.execPath, [entry, 'serve', folder, '-p', '0', '--served-model-name', 'bytes'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  t.teardown(() => child.kill('SIGKILL'));
  const { address, key } = await started(child);
  t.ok(key.length >= 32);
  t.equal((await fetch(`${address}/models`)).status, 401);
  const ask = (body: object) =>
    fetch(`${address}/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ model: 'bytes', prompt: 'x', ...body }),
    });
  t.equal((await ask({ max_tokens: 2 })).status, 200);
  const long = ask({ max_tokens: 3000, ignore_eos: true, stream: true }).then((response) => response.text());
  const exited = once(child, 'exit');
  await Promise.race([long, ask({ max_tokens: 1 })]);
  child.kill('SIGINT');
  t.same(await exited, [130, null]);
  t.match(await long, /"finish_reason":"length".*\[DONE\]\s*$/s);
});

t.test('a second Ctrl-C ends it at once, and so does its death', async (t) => {
  for (const [signals, exit] of [
    [
      ['SIGINT', 'SIGINT'],
      [130, null],
    ],
    [['SIGKILL'], [null, 'SIGKILL']],
  ] as [NodeJS.Signals[], unknown[]][]) {
    const child = spawn(process.execPath, [entry, 'serve', folder, '-p', '0', '--max-model-len', '60000'], {
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    t.teardown(() => child.kill('SIGKILL'));
    const { address, key } = await started(child);
    const response = await fetch(`${address}/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: JSON.stringify({ prompt: 'x', max_tokens: 59_000, ignore_eos: true, stream: true }),
    });
    const exited = once(child, 'exit');
    const told = once(child.stderr!, 'data');
    child.kill(signals[0]);
    if (signals.length > 1) {
      await told;
      child.kill(signals[1]);
    }
    t.same(await exited, exit);
    await t.rejects(response.text(), 'the connection ends with it');
  }
});

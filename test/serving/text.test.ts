// Text out of tokens as they come, and tool calls out of text: nothing torn, nothing lost, whatever the cuts.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { parseToolCalls, TextStream, Tokenizer, toolCallFormatOf } from '../../actors/index.ts';
import { Completion } from '../../actors/serving/completions.ts';
import type { ServedModel } from '../../actors/serving/served-model.ts';
import { streamCompletion } from '../../actors/serving/stream.ts';
import { writeByteModel } from './byte-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'text-'));
writeByteModel(folder);
const tokenizer = Tokenizer.load(folder);
t.teardown(() => rmSync(folder, { recursive: true }));

const someText = fc.string({
  unit: fc.oneof(fc.constantFrom('a', 'b', '<', ' '), fc.string({ unit: 'binary', minLength: 1, maxLength: 1 })),
  maxLength: 40,
});

t.test('a stream lets out the whole text, and never half a character', (t) => {
  fc.assert(
    fc.property(someText, (text) => {
      const stream = new TextStream(tokenizer);
      const pieces = [...tokenizer.encode(text)].map((id) => stream.push(id));
      pieces.push(stream.end());
      return (
        pieces.join('') === text && stream.text === text && pieces.every((piece) => !piece.includes('\ufffd') || text.includes('\ufffd'))
      );
    }),
    { seed: 1, numRuns: 300 },
  );
  t.end();
});

t.test('a stream ends before the first stop string, and shows no part of it', (t) => {
  const stops = fc.array(fc.string({ unit: fc.constantFrom('a', 'b', '<'), minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 3 });
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom('a', 'b', '<', 'é'), maxLength: 30 }), stops, (text, stops) => {
      const stream = new TextStream(tokenizer, stops);
      let out = '';
      for (const id of tokenizer.encode(text)) {
        out += stream.push(id);
        if (stream.stopped !== undefined) break;
      }
      out += stream.end();
      // The first stop to be complete ends the text; of those complete at one character, the one that began first.
      let expected = text;
      for (let end = 1; end <= text.length && expected === text; end++) {
        const begins = stops.filter((stop) => text.slice(0, end).endsWith(stop)).map((stop) => end - stop.length);
        if (begins.length > 0) expected = text.slice(0, Math.min(...begins));
      }
      return out === expected && stream.text === out;
    }),
    { seed: 2, numRuns: 500 },
  );
  t.end();
});

t.test('special tokens say nothing, and bytes that are no text come out as such at the end', (t) => {
  const stream = new TextStream(tokenizer);
  t.equal(stream.push(tokenizer.id('<|im_end|>')), '');
  const half = tokenizer.encode('é')[0]!;
  t.equal(stream.push(half), '');
  t.equal(stream.end(), '\ufffd');
  const many = new TextStream(tokenizer);
  let out = '';
  for (let i = 0; i < 100; i++) out += many.push(half);
  t.ok(out.length > 80, 'what never becomes a character is not held for ever');
  t.end();
});

t.test('tool calls are read where they are whole, and what is malformed stays text with the reason', (t) => {
  const call = (name: string, args: object): string => `<tool_call>\n${JSON.stringify({ name, arguments: args })}\n</tool_call>`;
  t.same(parseToolCalls('hermes', `I look.\n${call('find', { x: 1 })}\n${call('go', {})}`), {
    text: 'I look.',
    toolCalls: [
      { name: 'find', arguments: { x: 1 } },
      { name: 'go', arguments: {} },
    ],
  });
  t.same(parseToolCalls('hermes', '<tool_call>{"name": "f"}'), { text: '', toolCalls: [{ name: 'f', arguments: {} }] }, 'without its end');
  t.same(parseToolCalls('none', call('f', {})), { text: call('f', {}), toolCalls: [] });
  for (const [body, reason] of [
    ['{"name": "f", "arguments": {', /no JSON/],
    ['{"arguments": {}}', /no name/],
    ['{"name": "f", "arguments": [1]}', /arguments of f are no object/],
    ['null', /no JSON object: expected an object/],
    ['{"name": "f", "arguments": {"x": 01}}', /no JSON object: expected .* at character 35/],
  ] as const) {
    const parsed = parseToolCalls('hermes', `<tool_call>${body}</tool_call>${call('g', {})}`);
    t.match(parsed, { toolCalls: [{ name: 'g' }], malformed: reason });
    t.ok(parsed.text.includes(body));
  }
  // What plain data cannot say comes as it was written, too.
  const exact = (args: string) => parseToolCalls('hermes', `<tool_call>{"arguments": ${args}, "name": "f"}</tool_call>`).toolCalls[0];
  for (const args of ['{"x": 5.0}', '{"x": [-0.0]}', '{"x": 1e22}', '{"x": 9007199254740993}', '{"b": 1, "1": 2}', '{"x": NaN}']) {
    t.match(exact(args), { arguments: Object, argumentsText: args });
  }
  for (const args of ['{"x": 5, "y": 2.5, "z": "5.0"}', '{}']) t.strictSame(exact(args), { name: 'f', arguments: JSON.parse(args) });
  fc.assert(
    fc.property(fc.string(), (text) => {
      const parsed = parseToolCalls('hermes', text);
      return Array.isArray(parsed.toolCalls);
    }),
    { seed: 3 },
  );
  t.equal(toolCallFormatOf('... <tool_call> ...'), 'hermes');
  t.equal(toolCallFormatOf('plain'), 'none');
  t.end();
});

/** A model that says what it is told to, in these pieces. */
function scripted(pieces: readonly string[]): ServedModel {
  const fake = {
    name: 'scripted',
    tokenizer,
    turnFormat: 'hermes',
    defaults: { temperature: 1, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 },
    template: { renderRaw: () => 'x' },
    async answer(_prompt: unknown, _sampling: unknown, o: { onPiece?: (piece: object) => void }) {
      for (const text of pieces) o.onPiece?.({ text, token: 1, logprob: -1 });
      const count = pieces.length;
      const zeros = new Float32Array(count);
      return {
        text: pieces.join(''),
        tokens: new Int32Array(count),
        logprobs: zeros,
        versions: new Int32Array(count),
        finish: 'stop',
        cachedTokens: 0,
      };
    },
  };
  return fake as unknown as ServedModel;
}

t.test('a streamed chat with tools shows the text and then the calls, whatever the cuts', async (t) => {
  const text = 'Let me < see.<tool_call>{"name": "find", "arguments": {"code": "31"}}</tool_call>';
  const tools = [{ type: 'function' as const, function: { name: 'find' } }];
  await fc.assert(
    fc.asyncProperty(fc.array(fc.nat(text.length), { maxLength: 12 }), async (cuts) => {
      const at = [0, ...cuts.sort((a, b) => a - b), text.length];
      const pieces = at.slice(1).map((end, i) => text.slice(at[i], end));
      const completion = new Completion(scripted(pieces), { messages: [{ role: 'user', content: 'x' }], tools }, { seed: 0, now: 0 });
      const chunks: { choices: { delta: { content?: string; tool_calls?: { function: object }[] }; finish_reason: string | null }[] }[] =
        [];
      await streamCompletion(completion, new AbortController().signal, (chunk) => chunks.push(chunk as never));
      const deltas = chunks.map((chunk) => chunk.choices[0]!);
      const shown = deltas.map(({ delta }) => delta.content ?? '').join('');
      const calls = deltas.flatMap(({ delta }) => delta.tool_calls ?? []);
      return (
        shown === 'Let me < see.' &&
        JSON.stringify(calls.map((call) => call.function)) === JSON.stringify([{ name: 'find', arguments: '{"code":"31"}' }]) &&
        deltas.at(-1)!.finish_reason === 'tool_calls'
      );
    }),
    { seed: 4, numRuns: 200 },
  );
  const plain = new Completion(
    scripted(['<tool', '_call', ' that never comes']),
    { messages: [{ role: 'user', content: 'x' }], tools },
    { seed: 0, now: 0 },
  );
  let shown = '';
  await streamCompletion(plain, new AbortController().signal, (chunk) => {
    shown += (chunk as { choices: { delta: { content?: string } }[] }).choices[0]!.delta.content ?? '';
  });
  t.equal(shown, '<tool_call that never comes');
});

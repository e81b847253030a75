// The harmony format of gpt-oss: turns read however they are cut, conversations written as the format says, and a chat served in it.
import fc from 'fast-check';
import t from 'tap';
import { HarmonyReader, HarmonyTemplate, isHarmony } from '../../actors/index.ts';
import { Completion } from '../../actors/serving/completions.ts';
import type { ServedModel } from '../../actors/serving/served-model.ts';
import { streamCompletion } from '../../actors/serving/stream.ts';

const turn =
  '<|channel|>analysis<|message|>They ask for 2 < 3 <| things.<|end|><|start|>assistant<|channel|>commentary<|message|>I look. <|end|>' +
  '<|start|>assistant to=functions.find<|channel|>commentary <|constrain|>json<|message|>{"code": "31"}<|call|>';

/** Cuts a text at random places. */
const cut = (text: string) =>
  fc.array(fc.nat(text.length), { maxLength: 20 }).map((cuts) => {
    const at = [0, ...cuts.sort((a, b) => a - b), text.length];
    return at.slice(1).map((end, i) => text.slice(at[i], end));
  });

t.test('a turn is read the same however it is cut', (t) => {
  fc.assert(
    fc.property(cut(turn), (pieces) => {
      const reader = new HarmonyReader();
      let [content, reasoning] = ['', ''];
      const add = (delta: { content: string; reasoning: string }): void => {
        content += delta.content;
        reasoning += delta.reasoning;
        if (/<\|(end|start|channel|message|call)/.test(delta.content + delta.reasoning)) throw new Error('a marker was shown');
      };
      for (const piece of pieces) add(reader.push(piece));
      const end = reader.end();
      add(end);
      t.same(end.turn, {
        text: 'I look. ',
        reasoning: 'They ask for 2 < 3 <| things.',
        toolCalls: [{ name: 'find', arguments: { code: '31' } }],
      });
      return content === 'I look. ' && reasoning === 'They ask for 2 < 3 <| things.';
    }),
    { seed: 1, numRuns: 200 },
  );
  t.end();
});

t.test('the forms that models write', (t) => {
  const read = (text: string) => {
    const reader = new HarmonyReader();
    reader.push(text);
    return reader.end().turn;
  };
  const call = { text: '', toolCalls: [{ name: 'f', arguments: { x: 1 } }] };
  t.same(read('<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x":1}<|call|>'), call, 'the recipient after the channel');
  t.same(read(' to=functions.f<|channel|>commentary json<|message|>{"x":1}'), call, 'cut before its end');
  t.same(read('<|channel|>commentary to=functions.f<|message|><|call|>'), { text: '', toolCalls: [{ name: 'f', arguments: {} }] });
  t.same(read('<|channel|>final<|message|>Hello.<|return|>'), { text: 'Hello.', toolCalls: [] });
  t.same(read('<|message|>No channel.'), { text: 'No channel.', toolCalls: [] });
  t.same(read('<|channel|>analysis<|message|>cut in thou'), { text: '', reasoning: 'cut in thou', toolCalls: [] });
  t.same(read('<|channel|>fin'), { text: '', toolCalls: [] });
  t.match(read('<|channel|>commentary to=functions.f<|message|>{"x":<|call|>'), { toolCalls: [], malformed: /arguments of f are no JSON/ });
  t.match(read('<|channel|>commentary to=functions.f<|message|>[1]<|call|>'), { toolCalls: [], malformed: /arguments of f are no object/ });
  fc.assert(
    fc.property(
      fc.array(fc.constantFrom('<|channel|>', '<|message|>', '<|end|>', '<|start|>', '<|call|>', 'to=f', ' x', '{}', '<|')),
      (parts) => {
        const { toolCalls } = read(parts.join(''));
        return Array.isArray(toolCalls);
      },
    ),
    { seed: 2 },
  );
  t.end();
});

const tools = [
  {
    type: 'function',
    function: {
      name: 'weather',
      description: 'The weather\nof a place.',
      parameters: {
        type: 'object',
        properties: {
          place: { type: 'string', description: 'City and state' },
          unit: { type: 'string', enum: ['celsius', 'fahrenheit'], default: 'celsius' },
          days: { type: 'array', items: { type: 'integer' } },
          options: { type: 'object', properties: { exact: { type: 'boolean' } }, required: ['exact'] },
          note: { anyOf: [{ type: 'string' }, { type: 'null' }] },
        },
        required: ['place'],
      },
    },
  },
  { type: 'function', function: { name: 'now', parameters: { type: 'object', properties: {} } } },
];

const template = new HarmonyTemplate({ today: () => '2026-01-31' });
const system = (tools: boolean): string =>
  `<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\nKnowledge cutoff: 2024-06\nCurrent date: 2026-01-31\n\nReasoning: medium\n\n# Valid channels: analysis, commentary, final. Channel must be included for every message.${tools ? "\nCalls to these tools must go to the commentary channel: 'functions'." : ''}<|end|>`;

t.test('conversations are written as the format says', (t) => {
  t.equal(
    template.renderRaw([{ role: 'user', content: 'Hi' }], { generationPrompt: true }),
    `${system(false)}<|start|>user<|message|>Hi<|end|><|start|>assistant`,
  );
  const conversation = [
    { role: 'system', content: 'Be brief.' },
    { role: 'user', content: 'Weather?' },
    {
      role: 'assistant',
      thinking: 'Ask the tool.',
      content: '',
      tool_calls: [{ function: { name: 'weather', arguments: { place: 'Ulm' } } }],
    },
    { role: 'tool', content: '{"sky":"grey"}' },
  ];
  const declared = `<|start|>developer<|message|># Instructions

Be brief.

# Tools

## functions

namespace functions {

// The weather
// of a place.
type weather = (_: {
// City and state
place: string,
unit?: "celsius" | "fahrenheit", // default: celsius
days?: number[],
options?: {
    exact: boolean,
},
note?: string | null,
}) => any;

type now = () => any;

} // namespace functions<|end|>`;
  const head = `${system(true)}${declared}<|start|>user<|message|>Weather?<|end|>`;
  const called =
    '<|start|>assistant to=functions.weather<|channel|>commentary <|constrain|>json<|message|>{"place":"Ulm"}<|call|>' +
    '<|start|>functions.weather to=assistant<|channel|>commentary<|message|>{"sky":"grey"}<|end|>';
  const thought = '<|start|>assistant<|channel|>analysis<|message|>Ask the tool.<|end|>';
  t.equal(template.renderRaw(conversation, { generationPrompt: true, tools }), `${head}${thought}${called}<|start|>assistant`);
  const answered = [...conversation, { role: 'assistant', content: 'Grey.' }, { role: 'user', content: 'Thanks' }];
  t.equal(
    template.renderRaw(answered, { generationPrompt: true, tools }),
    `${head}${called}<|start|>assistant<|channel|>final<|message|>Grey.<|end|><|start|>user<|message|>Thanks<|end|><|start|>assistant`,
    'what was thought goes once it is answered',
  );
  t.match(template.renderRaw(answered.slice(0, -1), { generationPrompt: false, tools }), /Grey\.<\|return\|>$/);
  t.match(
    template.renderRaw([], { generationPrompt: true, variables: { reasoning_effort: 'high', current_date: '1999-12-31' } }),
    /1999-12-31\n\nReasoning: high/,
  );
  t.throws(() => template.renderRaw([{ role: 'tool', content: '' }], { generationPrompt: true }), { code: 'SINKFLEX_CHAT_TEMPLATE' });
  // What is written is read back.
  const reader = new HarmonyReader();
  reader.push(
    template
      .renderRaw(conversation.slice(1, 3), { generationPrompt: false, tools })
      .split('<|start|>assistant')
      .slice(1)
      .join('<|start|>assistant'),
  );
  t.match(reader.end().turn, { reasoning: 'Ask the tool.', toolCalls: [{ name: 'weather', arguments: { place: 'Ulm' } }] });
  t.ok(isHarmony('{{ "<|channel|>final<|message|>" }}'));
  t.notOk(isHarmony('<|im_start|>'));
  t.end();
});

t.test('a chat in harmony gives reasoning, text and calls, whole and streamed', async (t) => {
  await fc.assert(
    fc.asyncProperty(cut(turn), async (pieces) => {
      const model = {
        name: 'scripted',
        turnFormat: 'harmony',
        chatSpecials: true,
        tokenizer: { encode: () => Int32Array.of(1), decode: () => '' },
        defaults: { temperature: 1, topK: 0, topP: 1, minP: 0, repetitionPenalty: 1 },
        template,
        async answer(_prompt: unknown, _sampling: unknown, o: { specials: boolean; onPiece?: (piece: object) => void }) {
          if (!o.specials) throw new Error('the text would lack its markers');
          for (const text of pieces) o.onPiece?.({ text, token: 1, logprob: -1 });
          return {
            text: turn,
            tokens: Int32Array.of(1),
            logprobs: Float32Array.of(-1),
            versions: Int32Array.of(0),
            finish: 'stop',
            cachedTokens: 0,
          };
        },
      } as unknown as ServedModel;
      const request = { messages: [{ role: 'user' as const, content: 'x' }], tools: tools as never };
      const whole = new Completion(model, request, { seed: 0, now: 0 });
      const { choices } = whole.whole(await whole.run(new AbortController().signal)) as {
        choices: { message: Record<string, unknown>; finish_reason: string }[];
      };
      t.match(choices[0], {
        finish_reason: 'tool_calls',
        message: {
          content: 'I look. ',
          reasoning_content: 'They ask for 2 < 3 <| things.',
          tool_calls: [{ function: { name: 'find', arguments: '{"code":"31"}' } }],
        },
      });
      const deltas: Record<string, unknown>[] = [];
      await streamCompletion(new Completion(model, request, { seed: 0, now: 0 }), new AbortController().signal, (chunk) =>
        deltas.push((chunk as { choices: { delta: Record<string, unknown> }[] }).choices[0]!.delta),
      );
      const all = (key: string): string => deltas.map((delta) => delta[key] ?? '').join('');
      if (all('content') !== 'I look. ' || all('reasoning') !== 'They ask for 2 < 3 <| things.') throw new Error(JSON.stringify(deltas));
      if (deltas.flatMap((delta) => delta.tool_calls ?? []).length !== 1) throw new Error('calls');
    }),
    { seed: 3, numRuns: 30 },
  );
});

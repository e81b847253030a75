/** Conversations in the chat format of a model's folder: what the policy emitted stays as it was, whatever its template does to earlier turns. */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import { Chat, Conversation, desk, dialogueOf, entry, type Message, parseCodeTurn } from '../../actors/index.ts';
import { writeByteModel } from '../serving/byte-model.ts';

/** Forgets thoughts of turns before the last question, lays answers of tools into the user's turn, adds a system message of its own. */
const forgetful = `{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\nBe brief.<|im_end|>\\n' }}{%- endif %}
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}
{%- if m.role == 'tool' %}
{%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{ '<|im_start|>user' }}{%- endif %}
{{- '\\n<answer>' + m.content + '</answer>' }}
{%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{ '<|im_end|>\\n' }}{%- endif %}
{%- elif m.role == 'assistant' %}
{%- set words = m.content.split('</think>')[-1] if loop.index0 < ns.last else m.content %}
{{- '<|im_start|>assistant\\n' + words }}
{%- for call in m.tool_calls or [] %}{{ '\\n<tool_call>\\n' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '\\n</tool_call>' }}{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{%- if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{%- endif %}{%- endif %}`;

/** A folder with random weights, a tokenizer of bytes and this template; marks of the template become special tokens. */
function folder(t: { testdir(): string }, template: string | null, eos?: string): string {
  const dir = t.testdir();
  const into = join(dir, 'model');
  mkdirSync(into);
  writeByteModel(into);
  if (template === null) {
    rmSync(join(into, 'chat_template.jinja'));
    return into;
  }
  writeFileSync(join(into, 'chat_template.jinja'), template);
  const tokenizer = JSON.parse(readFileSync(join(into, 'tokenizer.json'), 'utf8'));
  const vocab: Record<string, number> = tokenizer.model.vocab;
  for (const mark of [...new Set(template.match(/<[|｜]?[A-Za-z/][^<>\n'"{}%]{0,40}>/g) ?? []), ...(eos === undefined ? [] : [eos])]) {
    if (vocab[mark] !== undefined || /answer|think|tool_/.test(mark)) continue;
    const id = Object.keys(vocab).length;
    vocab[mark] = id;
    const plain = { single_word: false, lstrip: false, rstrip: false, normalized: false };
    tokenizer.added_tokens.push({ id, content: mark, ...plain, special: true });
  }
  writeFileSync(join(into, 'tokenizer.json'), JSON.stringify(tokenizer));
  const config = JSON.parse(readFileSync(join(into, 'config.json'), 'utf8'));
  config.vocab_size = Object.keys(vocab).length;
  if (eos !== undefined) {
    config.eos_token_id = vocab[eos];
    writeFileSync(join(into, 'generation_config.json'), '{}');
    writeFileSync(join(into, 'tokenizer_config.json'), JSON.stringify({ eos_token: eos }));
  }
  writeFileSync(join(into, 'config.json'), JSON.stringify(config));
  return into;
}
const tools = [
  { type: 'function' as const, function: { name: 'find', description: 'Finds.', parameters: { type: 'object', properties: {} } } },
];
const called = (args: string): string => `<think>what now</think>So.\n<tool_call>\n{"name": "find", "arguments": ${args}}\n</tool_call>`;

t.test('a template that rewrites earlier turns rewrites none here', async (t) => {
  const chat = Chat.ofModel(folder(t, forgetful));
  const text = (ids: ArrayLike<number>): string => chat.tokenizer.decode(ids);
  t.equal(chat.tokenizer.token(chat.endOfTurn), '<|im_end|>');
  t.same(chat.stopIds.map((id) => chat.tokenizer.token(id)).sort(), ['<|endoftext|>', '<|im_end|>']);
  const said = fc.constantFrom(called('{"x": 1}'), called('{'), '<think>hm</think>Hello.', '', '<tool_call>', '<|im_start|>', '€');
  const reply = fc.constantFrom<Message[]>(
    [{ role: 'user', content: 'go on' }],
    [{ role: 'tool', name: 'find', content: '{"a": "b"}' }],
    [
      { role: 'tool', name: 'find', content: 'one' },
      { role: 'tool', name: 'find', content: 'two' },
    ],
  );
  const end = fc.constantFrom('<|im_end|>', '<|endoftext|>', '');
  await fc.assert(
    fc.asyncProperty(fc.array(fc.tuple(said, end, reply), { minLength: 1, maxLength: 5 }), async (turns) => {
      const c = new Conversation(chat);
      let ledger = [...c.start([{ role: 'user', content: 'hi' }], tools)];
      const mask = ledger.map(() => 0);
      for (const [words, ending, messages] of turns) {
        const ids = [...chat.tokenizer.encode(words + ending)];
        c.produced(ids);
        const more = [...c.observe(messages)];
        const observed = messages.every(({ role }) => role === 'tool')
          ? `<|im_start|>user${messages.map((m) => `\n<answer>${m.content}</answer>`).join('')}<|im_end|>\n`
          : '<|im_start|>user\ngo on<|im_end|>\n';
        if (text(more) !== `${ending === '' ? '<|im_end|>' : ''}\n${observed}<|im_start|>assistant\n`)
          throw new Error(`observed ${JSON.stringify(text(more))}`);
        ledger = [...ledger, ...ids, ...more];
        mask.push(...ids.map(() => 1), ...more.map(() => 0));
        const now = c.ids();
        if (JSON.stringify([...now.ids]) !== JSON.stringify(ledger) || JSON.stringify([...now.mask]) !== JSON.stringify(mask))
          throw new Error('the ledger has changed');
      }
    }),
    { seed: 5, numRuns: 60 },
  );
});

t.test('turns are read as the family writes them; thoughts are no speech', async (t) => {
  const chat = Chat.ofModel(folder(t, forgetful), { variables: { enable_thinking: false } });
  const read = (words: string) => chat.parse(chat.turn(words));
  t.match(read(called('{"x": 1}')), { text: 'So.', toolCalls: [{ name: 'find', arguments: { x: 1 } }], finish: false });
  t.match(read(called('{"x": ')), { toolCalls: [], malformed: /no JSON/ });
  t.match(read('<think>a</think> Hello.'), { text: 'Hello.', toolCalls: [], malformed: undefined });
  t.match(read('opened by the prompt</think>Hello.'), { text: 'Hello.' });
  t.match(read('<think>never done <tool_call>{"name": "find"}</tool_call>'), { text: '', toolCalls: [] });
  t.equal(chat.tokenizer.decode(chat.prompt([{ role: 'user', content: 'hi' }])).endsWith('<|im_start|>assistant\n<think></think>'), true);
  t.ok(chat.tokenizer.decode(chat.prompt([{ role: 'user', content: 'hi' }])).startsWith('<|im_start|>system\nBe brief.'));
});

t.test('harmony: what was returned stays returned, calls are answered by name', async (t) => {
  const template = `{%- for m in messages %}{%- if m.role == 'assistant' %}{%- if m.tool_calls %}{{ '<|start|>assistant to=functions.' + m.tool_calls[0].function.name + '<|channel|>commentary json<|message|>' + (m.tool_calls[0].function.arguments | tojson) + '<|call|>' }}{%- else %}{{ '<|start|>assistant<|channel|>final<|message|>' + m.content + ('<|return|>' if loop.last and not add_generation_prompt else '<|end|>') }}{%- endif %}{%- elif m.role == 'tool' %}{{ '<|start|>functions.' + (m.name or 'x') + ' to=assistant<|channel|>commentary<|message|>' + (m.content | tojson) + '<|end|>' }}{%- else %}{{ '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{%- endif %}`;
  const chat = Chat.ofModel(folder(t, template, '<|return|>'));
  const text = (ids: ArrayLike<number>): string => chat.tokenizer.decode(ids);
  t.same(chat.stopIds.map((id) => chat.tokenizer.token(id)).sort(), ['<|call|>', '<|return|>']);
  t.equal(text(chat.turn('Yes.')), '<|channel|>final<|message|>Yes.<|return|>');
  const c = new Conversation(chat);
  c.start([{ role: 'user', content: 'hi' }]);
  const turn = chat.tokenizer.encode(
    '<|channel|>analysis<|message|>hm<|end|><|start|>assistant to=functions.find<|channel|>commentary json<|message|>{"x":1}<|call|>',
  );
  t.match(c.produced(turn), { text: '', toolCalls: [{ name: 'find', arguments: { x: 1 } }] });
  t.equal(
    text(c.observe([{ role: 'tool', name: 'find', content: 'a "b"' }])),
    '<|start|>functions.find to=assistant<|channel|>commentary<|message|>"a \\"b\\""<|end|><|start|>assistant',
  );
  t.match(c.produced(chat.turn('Done.')), { text: 'Done.', toolCalls: [] });
  t.equal(text(c.observe([{ role: 'user', content: 'more' }])), '<|start|>user<|message|>more<|end|><|start|>assistant');
  t.match(text(c.ids().ids), /Done\.<\|return\|><\|start\|>user/);
  t.match(c.produced(chat.tokenizer.encode('<|channel|>final<|message|>cut')), { text: 'cut' });
  t.match(text(c.observe([{ role: 'user', content: 'more' }])), /^<\|end\|><\|start\|>user/);
});

t.test('folders that no conversation can be held with say what is missing', async (t) => {
  const bare = folder(t, null);
  t.throws(() => Chat.ofModel(bare), { code: 'SINKFLEX_CHAT_TEMPLATE', message: /no chat template: take the instruct variant/ });
  const mute = folder(t, '{% for m in messages %}{{ m.content }}{% endfor %}');
  t.throws(() => Chat.ofModel(mute), { code: 'SINKFLEX_CHAT_TEMPLATE', message: /no token that ends an assistant/ });
  // No tools: what they answer is said by the user. No user after an assistant: an error.
  const toolless = `{%- for m in messages %}{%- if m.role == 'tool' %}{{ raise_exception('no tools') }}{%- endif %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>' }}{%- endfor %}`;
  const chat = Chat.ofModel(folder(t, toolless));
  t.equal(chat.tokenizer.decode(chat.delta([{ role: 'tool', name: 'find', content: 'it' }])), '<|im_start|>user\nit<|im_end|>');
  const dropping = `{%- for m in messages %}{%- if m.role != 'user' or loop.first %}{{ '<|im_start|>' + m.role + m.content + '<|im_end|>' }}{%- endif %}{%- endfor %}`;
  const drops = Chat.ofModel(folder(t, dropping));
  t.throws(() => drops.delta([{ role: 'user', content: 'it' }]), { code: 'SINKFLEX_CHAT_TEMPLATE', message: /leaves out turns/ });
});

t.test('which format an environment is played in', async (t) => {
  const model = folder(t, forgetful);
  t.match(dialogueOf(entry('desk'), { model: null }), { of: 'environment' });
  t.throws(() => dialogueOf(entry('code'), { model: null }), { code: 'SINKFLEX_ENVIRONMENT_CHAT' });
  t.match(dialogueOf(entry('code'), { model }), { of: 'model' });
  const own = dialogueOf(entry('code-bytes'), { model }).chat;
  t.match(
    own.parse(own.turn('```python\nprint(1)\n```')),
    parseCodeTurn('```python\nprint(1)\n```'),
    "the environment's own words are read",
  );
  t.match(own.parse(own.turn('<tool_call>{"name": "finish"}</tool_call>')), { toolCalls: [{ name: 'finish' }] });
  dialogueOf(entry('desk'), { model: null }).chat.tokenizer.save(model);
  t.match(dialogueOf(entry('desk'), { model }), { of: 'environment' });
  t.throws(() => dialogueOf({ ...entry('code') }, { model: dirname(model) }), {
    code: 'SINKFLEX_ENVIRONMENT_CHAT',
    message: /tokenizer\.json/,
  });
  t.equal(desk.chat !== undefined, true);
});

const peers = process.env.SINKFLEX_PEERS ?? join(homedir(), '.cache/sinkflex-peers/bin/python');
const library = join(dirname(dirname(peers)), 'lib');
const templates = (existsSync(library) ? readdirSync(library) : [])
  .map((python) => join(library, python, 'site-packages/trl/chat_templates'))
  .find((dir) => existsSync(dir));
/** What these cannot be rendered with here is not about turns. */
const unreadable = new Set(['idefics3.jinja', 'llava_next.jinja']);

t.test('templates of real families', { skip: templates === undefined && 'no peers with TRL (SINKFLEX_PEERS)' }, async (t) => {
  for (const name of readdirSync(templates!).filter((each) =>
    /^(qwen|gptoss|llama|lfm|glm|phi|gemma|deepseek|nemotron|cohere)/.test(each),
  )) {
    if (unreadable.has(name) || name.includes('training')) continue;
    const source = readFileSync(join(templates!, name), 'utf8');
    const ends = source.includes('eos_token') ? '</eos>' : '<|endoftext|>';
    const chat = Chat.ofModel(folder(t, source, /gptoss/.test(name) ? '<|return|>' : ends));
    const text = (ids: ArrayLike<number>): string => chat.tokenizer.decode(ids);
    const first: Message[] = [{ role: 'user', content: 'QUESTION' }];
    const more: Message[] = [{ role: 'user', content: 'MORE' }];
    const whole = chat.template.render([...first, { role: 'assistant', content: 'SAID' }, ...more], { generationPrompt: true });
    const opening = text(chat.prompt(first));
    const turn = text(chat.turn('SAID'));
    const following = text(chat.delta(more));
    t.ok(whole.endsWith(following) && following.includes('MORE'), `${name}: ${JSON.stringify(following)}`);
    // What is not rewritten is the same to the character.
    if (whole.startsWith(opening + turn)) t.equal(opening + turn + following, whole, name);
    t.ok(text(chat.delta([{ role: 'tool', name: 'find', content: 'ANSWER' }])).includes('ANSWER'), `${name}: tools`);
  }
});

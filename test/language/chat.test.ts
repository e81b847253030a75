/** Tokenizer, template, ledger and parser: nothing is unknown, nothing is encoded twice, and a demonstration is what a rollout would hold. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import type { Message, StepResult } from '../../actors/environment/index.ts';
import { desk, deskTokenizer, trainingTask } from '../../actors/environment/index.ts';
import { Chat, Conversation, episodeIds, renderTranscript, Tokenizer, wordParser } from '../../actors/language/index.ts';

const chat = new Chat(desk.chat);
const unknown = chat.tokenizer.id('<|unk|>');

t.test('the desk has a small vocabulary, the same each time', async (t) => {
  t.strictSame(JSON.stringify(deskTokenizer()), JSON.stringify(deskTokenizer()));
  t.ok(chat.tokenizer.vocabularySize <= 128 && chat.tokenizer.vocabularySize % 16 === 0, `${chat.tokenizer.vocabularySize} tokens`);
  t.strictSame([...chat.tokenizer.encode('it is 47')], [...chat.tokenizer.encode('it is 4 7')]);
  t.ok(chat.tokenizer.encode('zebra').includes(unknown));
});

t.test('thousands of episodes encode without an unknown token, and decoding is stable', async (t) => {
  let tokens = 0;
  for (let i = 0; i < 2000; i++) {
    const level = 1 + (i % 4);
    const { messages } = desk.demonstrate!(trainingTask(3, i), i, { noise: (i % 5) / 2, options: { level } });
    const { ids } = episodeIds(chat, messages);
    tokens += ids.length;
    if (ids.includes(unknown)) t.fail(`unknown token in ${chat.tokenizer.decode(ids)}`);
    if (i % 10 === 0) {
      const text = chat.tokenizer.decode(ids);
      t.strictSame([...chat.tokenizer.encode(text)], [...ids]);
    }
    for (const m of messages) {
      if (chat.tokenizer.decode(chat.tokenizer.encode(m.content)) !== m.content) t.fail(`"${m.content}" does not come back`);
    }
  }
  t.ok(tokens > 200_000);
});

t.test('a rollout and a demonstration of the same episode are the same ids and mask', async (t) => {
  for (let i = 0; i < 150; i++) {
    const told = desk.demonstrate!(trainingTask(4, i), i, { noise: 1.5 });
    const environment = desk.create();
    const conversation = new Conversation(chat);
    let sent = [...conversation.start((await environment.reset({ seed: trainingTask(4, i) })).observation)];
    const whole: number[] = [...sent];
    let end: StepResult | undefined;
    for (const m of told.messages.filter((m) => m.role === 'assistant')) {
      const turn = chat.turn(m.content);
      whole.push(...turn);
      const action = conversation.produced(turn);
      end = await environment.step(action);
      if (end.terminated || end.truncated) break;
      sent = [...conversation.observe(end.observation)];
      whole.push(...sent);
    }
    const ledger = conversation.ids();
    t.strictSame([...ledger.ids], whole);
    const written = episodeIds(chat, told.messages);
    t.strictSame([...ledger.ids], [...written.ids]);
    t.strictSame([...ledger.mask], [...written.mask]);
    t.equal(end!.reward, told.reward);
    // The template agrees with the ledger, and the mask covers the assistant's words and end marks.
    const lastTurn = told.messages.findLastIndex((m) => m.role === 'assistant');
    t.equal(
      chat.tokenizer.decode(ledger.ids),
      chat.tokenizer.decode(chat.tokenizer.encode(chat.template.render(told.messages.slice(0, lastTurn + 1), { generationPrompt: false }))),
    );
    const masked = [...ledger.ids].filter((_, j) => ledger.mask[j] === 1);
    t.strictSame(
      masked,
      told.messages.filter((m) => m.role === 'assistant').flatMap((m) => [...chat.turn(m.content)]),
    );
  }
});

t.test('what the policy produced stays as it was, however odd', async (t) => {
  const conversation = new Conversation(chat);
  const start = conversation.start([
    { role: 'system', content: 'rules gold full plus half basic 2 hold none' },
    { role: 'user', content: 'my ride will not end' },
  ]);
  const odd = [chat.tokenizer.id('<|tool|>'), chat.tokenizer.id('call'), chat.tokenizer.id('<|user|>')];
  const action = conversation.produced(odd);
  t.equal(action.text, '<|tool|> call <|user|>');
  const reply: Message[] = [{ role: 'user', content: 'pardon' }];
  const answer = conversation.observe(reply);
  // Cut before its end mark: the ledger closes the turn, and the policy is not trained on that mark.
  t.strictSame([...answer], [...chat.tokenizer.encode('<|end|><|user|>pardon<|assistant|>')]);
  conversation.produced([...odd, chat.endOfTurn]);
  t.strictSame([...conversation.observe(reply)], [...chat.tokenizer.encode('<|user|>pardon<|assistant|>')]);
  const { ids, mask } = conversation.ids();
  t.strictSame([...ids.slice(start.length, start.length + 3)], odd);
  t.equal(
    mask.reduce((a, b) => a + b, 0),
    7,
  );
  t.throws(() => conversation.observe(reply), { code: 'SINKFLEX_CONVERSATION', details: { expected: 'turn' } });
  t.throws(() => conversation.start(reply), { code: 'SINKFLEX_CONVERSATION' });
  t.throws(() => episodeIds(chat, reply), { code: 'SINKFLEX_CONVERSATION' });
});

t.test('templates of another kind: line feeds after the end mark, and ones that cannot work', async (t) => {
  const files = deskTokenizer();
  const withTemplate = (chat_template: string, endOfTurn?: string) =>
    new Chat(
      { ...files, tokenizerConfig: { ...files.tokenizerConfig, chat_template }, parse: desk.chat.parse },
      endOfTurn ? { endOfTurn } : {},
    );
  const chatml = withTemplate(
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}",
  );
  t.strictSame(
    [...chatml.delta([{ role: 'tool', content: 'ok' }])],
    [...chatml.tokenizer.encode('\n<|tool|>\nok<|end|>\n<|assistant|>\n')],
  );
  const silent = withTemplate('{% for m in messages %}{{ m.content }}{% endfor %}');
  t.throws(() => silent.delta([{ role: 'tool', content: 'ok' }]), { code: 'SINKFLEX_CHAT_TEMPLATE', message: /does not close/ });
  const forgetful = withTemplate('{{ messages[-1].content }}<|end|>');
  t.throws(() => forgetful.delta([{ role: 'tool', content: 'ok' }]), { code: 'SINKFLEX_CHAT_TEMPLATE' });
  t.throws(() => withTemplate('{% for %}'), { code: 'SINKFLEX_CHAT_TEMPLATE' });
  t.throws(() => withTemplate("{{ raise_exception('no tools') }}").prompt([]), { code: 'SINKFLEX_CHAT_TEMPLATE', message: /no tools/ });
  t.throws(() => withTemplate('x', '<|nobody|>'), { code: 'SINKFLEX_TOKENIZER' });
  t.throws(() => new Tokenizer({ tokenizer: {}, tokenizerConfig: {} }), { code: 'SINKFLEX_TOKENIZER' });
});

t.test('a tokenizer folder is written and read back', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'sinkflex-tokenizer-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  t.throws(() => Tokenizer.load(folder), { code: 'SINKFLEX_TOKENIZER', message: /tokenizer.json/ });
  chat.tokenizer.save(folder);
  const again = Tokenizer.load(folder);
  t.strictSame([...again.encode('<|user|>it is 4 7')], [...chat.tokenizer.encode('<|user|>it is 4 7')]);
});

t.test('the parser reads calls, speech and closings, and says what is wrong', async (t) => {
  t.match(desk.chat.parse('call refund delta 3'), {
    toolCalls: [{ name: 'refund', arguments: { ride: 'delta', amount: '3' } }],
    malformed: undefined,
  });
  t.match(desk.chat.parse('call flag otter brake'), { toolCalls: [{ name: 'flag', arguments: { bike: 'otter', part: 'brake' } }] });
  t.match(desk.chat.parse('done refund 4'), { finish: true, toolCalls: [] });
  t.match(desk.chat.parse('done refund'), { finish: false });
  t.match(desk.chat.parse('call'), { malformed: 'no tool is named' });
  t.match(desk.chat.parse('call hasOwnProperty'), { malformed: /no tool is named/ });
  t.match(desk.chat.parse('call find_rider 3'), { malformed: 'find_rider takes 2 digits for code' });
  t.match(desk.chat.parse('call lock delta'), { malformed: 'lock takes a word for bike' });
  t.match(desk.chat.parse('call flag otter bike'), { malformed: 'flag takes a word for part' });
  t.match(desk.chat.parse('call docks 1'), { malformed: 'docks takes no more arguments' });
  t.match(desk.chat.parse(''), { malformed: 'the turn is empty' });
  const parse = wordParser({ tools: { lock: [{ name: 'bike', digits: 2 }] } });
  fc.assert(fc.property(fc.string(), (text) => parse(text).text === text));
});

t.test('transcripts read as text', async (t) => {
  const told = desk.demonstrate!(2, 1, { noise: 0 });
  const page = renderTranscript(told.messages, {
    title: 'task 2',
    reward: told.reward,
    rewardParts: told.rewardParts,
    notes: ['stopped: done'],
  });
  t.match(page, /^task 2\n\nsystem {5}rules gold /);
  t.match(page, /assistant {2}please tell me your code\n/);
  t.match(page, /\nscore 1 {2}\(closed 1, state 1, told 1, order 1, identified 1\)\nstopped: done\n$/);
  const fromIds = renderTranscript({ chat, ids: episodeIds(chat, told.messages).ids });
  t.match(fromIds, /\n<\|assistant\|> please tell me your code <\|end\|>\n<\|user\|> it is \d \d\n/);
});

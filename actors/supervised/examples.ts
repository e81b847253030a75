/**
 * Examples of supervised fine-tuning from JSON lines, as ids and a mask of what is to be learnt. A line is a chat (`messages`: what the
 * assistant says is learnt), a `prompt` and its `completion`, or `text` (all of it is learnt).
 */
import { closeSync, openSync, readSync } from 'node:fs';
import { StringDecoder } from 'node:string_decoder';
import { z } from 'zod';
import { ActorsError } from '../errors.ts';
import type { ConversationTemplate, Tokenizer } from '../language/index.ts';
import type { MaskedSequence } from '../trainer/index.ts';

const toolCall = z.looseObject({ function: z.looseObject({ name: z.string(), arguments: z.unknown() }) });
const message = z.looseObject({ role: z.string(), content: z.string().nullish(), tool_calls: z.array(toolCall).optional() });
const line = z.union([
  z.looseObject({ messages: z.array(message).min(1), tools: z.array(z.unknown()).optional() }),
  z.looseObject({ prompt: z.string(), completion: z.string() }),
  z.looseObject({ text: z.string() }),
]);

export interface ExampleReader {
  tokenizer: Tokenizer;
  /** Needed for chats. */
  template: ConversationTemplate | undefined;
  /** Ends what the assistant says; learnt too. */
  stopIds: readonly number[];
  maxLength: number;
  /** What is done with examples that are longer. */
  truncation: 'error' | 'right' | 'drop';
}

export interface Examples {
  sequences: MaskedSequence[];
  truncated: number;
  dropped: number;
}

/** Reads a file of examples. SINKFLEX_EXAMPLE names the line that cannot be used. */
export function readExamples(path: string, reader: ExampleReader): Examples {
  const examples: Examples = { sequences: [], truncated: 0, dropped: 0 };
  let number = 0;
  for (const text of linesOf(path)) {
    number++;
    if (text.trim() === '') continue;
    const where = `${path}:${number}`;
    const sequence = encode(text, reader, where);
    if (sequence.ids.length <= reader.maxLength) {
      examples.sequences.push(sequence);
      continue;
    }
    if (reader.truncation === 'error')
      throw refusal(
        where,
        `it has ${sequence.ids.length} tokens, max_length is ${reader.maxLength}: raise it, or set truncation to right or drop`,
      );
    const cut = { ids: sequence.ids.slice(0, reader.maxLength), mask: sequence.mask.slice(0, reader.maxLength) };
    if (reader.truncation === 'right' && cut.mask.includes(1)) {
      examples.truncated++;
      examples.sequences.push(cut);
    } else examples.dropped++;
  }
  if (examples.sequences.length === 0) throw refusal(path, 'it holds no example that can be learnt from');
  return examples;
}

/** In pieces: a file may be larger than a string can be. */
function* linesOf(path: string): Generator<string> {
  let fd: number;
  try {
    fd = openSync(path, 'r');
  } catch (cause) {
    throw new ActorsError('SINKFLEX_EXAMPLE', `${path} cannot be read: ${(cause as Error).message}`, { cause });
  }
  try {
    const decoder = new StringDecoder('utf8');
    const block = Buffer.alloc(1 << 20);
    let rest = '';
    for (let n = readSync(fd, block); n > 0; n = readSync(fd, block)) {
      const lines = (rest + decoder.write(block.subarray(0, n))).split('\n');
      rest = lines.pop()!;
      yield* lines;
    }
    if (rest !== '') yield rest;
  } finally {
    closeSync(fd);
  }
}

function refusal(where: string, what: string, cause?: unknown): ActorsError {
  return new ActorsError('SINKFLEX_EXAMPLE', `${where}: ${what}`, { details: { where }, ...(cause === undefined ? {} : { cause }) });
}

function encode(text: string, reader: ExampleReader, where: string): MaskedSequence {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw refusal(where, `no JSON: ${(cause as Error).message}`, cause);
  }
  const parsed = line.safeParse(json);
  if (!parsed.success) throw refusal(where, 'a line has `messages` (role and content each), or `prompt` and `completion`, or `text`');
  const pieces = new Pieces(reader.tokenizer);
  const { data } = parsed;
  const stop = reader.stopIds.at(-1);
  if ('messages' in data) encodeChat(pieces, data as Chat, reader, where);
  else if ('completion' in data) {
    pieces.add(data.prompt as string, 0);
    pieces.add(data.completion as string, 1);
    if (stop !== undefined) pieces.addId(stop, 1);
  } else {
    pieces.add(data.text as string, 1);
    if (stop !== undefined) pieces.addId(stop, 1);
  }
  const sequence = pieces.sequence();
  // Nothing predicts a sequence's first token.
  if (sequence.mask.length > 0) sequence.mask[0] = 0;
  if (!sequence.mask.includes(1))
    throw refusal(where, 'nothing in it is to be learnt: it has no turn of the assistant, or nothing after its first token');
  return sequence;
}

class Pieces {
  readonly #tokenizer: Tokenizer;
  readonly #ids: number[] = [];
  readonly #mask: number[] = [];

  constructor(tokenizer: Tokenizer) {
    this.#tokenizer = tokenizer;
  }

  add(text: string, mask: 0 | 1): void {
    if (text === '') return;
    for (const id of this.#tokenizer.encode(text)) this.addId(id, mask);
  }

  addId(id: number, mask: 0 | 1): void {
    this.#ids.push(id);
    this.#mask.push(mask);
  }

  /** What the assistant says: up to and with the token that ends it. What the template writes after that is not the assistant's. */
  addTurn(text: string, stopIds: readonly number[]): void {
    const ids = [...this.#tokenizer.encode(text)];
    const end = ids.findLastIndex((id) => stopIds.includes(id));
    for (const [i, id] of ids.entries()) this.addId(id, end < 0 || i <= end ? 1 : 0);
  }

  sequence(): MaskedSequence {
    return { ids: Int32Array.from(this.#ids), mask: Uint8Array.from(this.#mask) };
  }
}

interface Chat {
  messages: (Record<string, unknown> & { role: string; tool_calls?: { function: { arguments: unknown } }[] | undefined })[];
  tools?: unknown[] | undefined;
}

/** Turn by turn, so that the ids are those that a policy sees and emits. */
function encodeChat(pieces: Pieces, { messages, tools }: Chat, reader: ExampleReader, where: string): void {
  const { template } = reader;
  if (template === undefined) throw refusal(where, 'it is a chat, and the model has no chat template: give prompt and completion instead');
  const plain = messages.map(withObjects);
  const render = (count: number, generationPrompt: boolean): string =>
    template.renderRaw(plain.slice(0, count), { generationPrompt, ...(tools === undefined ? {} : { tools }) });
  let done = '';
  for (const [i, { role }] of messages.entries()) {
    if (role !== 'assistant') continue;
    const before = render(i, true);
    const after = render(i + 1, false);
    if (!before.startsWith(done) || !after.startsWith(before))
      throw refusal(
        where,
        `the chat template rewrites earlier turns at message ${i}: split the chat, so that each line ends with the turn to be learnt`,
      );
    pieces.add(before.slice(done.length), 0);
    pieces.addTurn(after.slice(before.length), reader.stopIds);
    done = after;
  }
}

/** Templates take arguments of calls as objects; files often hold them as text. */
function withObjects(message: Chat['messages'][number]): Record<string, unknown> {
  const { tool_calls: calls, ...rest } = message;
  if (calls === undefined) return { content: '', ...rest };
  const read = (value: unknown): unknown => {
    try {
      return typeof value === 'string' ? JSON.parse(value) : value;
    } catch {
      return value;
    }
  };
  return {
    content: '',
    ...rest,
    tool_calls: calls.map((call) => ({ ...call, function: { ...call.function, arguments: read(call.function.arguments) } })),
  };
}

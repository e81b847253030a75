/** A Hugging Face tokenizer folder: tokenizer.json and tokenizer_config.json, encoded and decoded by @huggingface/tokenizers. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import { ActorsError } from '../errors.ts';
import { Memo } from './memo.ts';

export interface TokenizerFiles {
  /** Content of tokenizer.json. */
  tokenizer: Record<string, unknown>;
  /** Content of tokenizer_config.json. */
  tokenizerConfig: Record<string, unknown>;
}

/**
 * Text to ids and back. Special tokens in a text are read as such; none are added.
 *
 * @example const tokenizer = Tokenizer.load('runs/x/checkpoints/step-0000000010')
 */
export class Tokenizer {
  readonly files: TokenizerFiles;
  /** One more than the largest id: the least vocabulary that a model needs. */
  readonly vocabularySize: number;
  readonly #inner: HuggingFaceTokenizer;
  readonly #encoded = new Memo<string, Int32Array>(16384);

  constructor(files: TokenizerFiles) {
    this.files = files;
    try {
      this.#inner = new HuggingFaceTokenizer(files.tokenizer, files.tokenizerConfig);
    } catch (cause) {
      throw new ActorsError('SINKFLEX_TOKENIZER', `cannot use this tokenizer.json: ${message(cause)}`, { cause });
    }
    let largest = -1;
    for (const id of this.#inner.get_vocab().values()) largest = Math.max(largest, id);
    this.vocabularySize = largest + 1;
  }

  static load(folder: string): Tokenizer {
    const tokenizer = readJson(folder, 'tokenizer.json');
    const tokenizerConfig = readJson(folder, 'tokenizer_config.json');
    // Newer folders keep the template in a file of its own.
    const template = join(folder, 'chat_template.jinja');
    if (tokenizerConfig.chat_template === undefined && existsSync(template)) tokenizerConfig.chat_template = readFileSync(template, 'utf8');
    return new Tokenizer({ tokenizer, tokenizerConfig });
  }

  /** Writes the two files, so that transformers opens the folder with AutoTokenizer. */
  save(folder: string): void {
    writeFileSync(join(folder, 'tokenizer.json'), `${JSON.stringify(this.files.tokenizer, null, 2)}\n`);
    writeFileSync(join(folder, 'tokenizer_config.json'), `${JSON.stringify(this.files.tokenizerConfig, null, 2)}\n`);
  }

  /** Shared and cached: do not write into the result. */
  encode(text: string): Int32Array {
    // Long texts are whole prompts, which whoever needs them again remembers.
    return text.length > REMEMBERED ? this.#encode(text) : this.#encoded.get(text, () => this.#encode(text));
  }

  #encode(text: string): Int32Array {
    const ids: (number | undefined)[] = this.#inner.encode(text, { add_special_tokens: false }).ids;
    if (ids.includes(undefined)) {
      throw new ActorsError('SINKFLEX_TOKENIZER', `the tokenizer has no id for part of ${JSON.stringify(text)}, and no unknown token`, {
        details: { text },
      });
    }
    return Int32Array.from(ids as number[]);
  }

  decode(ids: ArrayLike<number>): string {
    if (ids.length === 0) return '';
    return this.#inner.decode(Array.from(ids), { skip_special_tokens: false });
  }

  /**
   * What each token says, as bytes: token i is bytes [offsets[i], offsets[i + 1]); special tokens have none. Undefined where a token's text
   * depends on its neighbours: only byte-level vocabularies are known to be free of that.
   */
  tokenBytes(): { bytes: Uint8Array; offsets: Int32Array } | undefined {
    if (!/"type":"ByteLevel"/.test(JSON.stringify(this.files.tokenizer.decoder ?? null))) return undefined;
    const added = this.#inner.get_added_tokens_decoder();
    const offsets = new Int32Array(this.vocabularySize + 1);
    const parts: Buffer[] = [];
    let length = 0;
    for (let id = 0; id < this.vocabularySize; id++) {
      const token = this.token(id) ?? '';
      let part: Buffer;
      if (added.has(id)) part = this.isSpecial(id) ? Buffer.alloc(0) : Buffer.from(token);
      else part = Buffer.concat(Array.from(token, (c) => (BYTE_OF.has(c) ? Buffer.of(BYTE_OF.get(c)!) : Buffer.from(c))));
      parts.push(part);
      length += part.length;
      offsets[id + 1] = length;
    }
    return { bytes: Buffer.concat(parts), offsets };
  }

  id(token: string): number {
    const id = this.#inner.token_to_id(token);
    if (id === undefined)
      throw new ActorsError('SINKFLEX_TOKENIZER', `the tokenizer has no token ${JSON.stringify(token)}`, { details: { token } });
    return id;
  }

  has(token: string): boolean {
    return this.#inner.token_to_id(token) !== undefined;
  }

  token(id: number): string | undefined {
    return this.#inner.id_to_token(id);
  }

  /** A special token named in tokenizer_config.json: `eos_token`, `pad_token`, `unk_token`, `bos_token`. */
  special(role: 'eos_token' | 'pad_token' | 'unk_token' | 'bos_token'): string | undefined {
    const value = this.files.tokenizerConfig[role];
    if (typeof value === 'string') return value;
    const content = (value as { content?: unknown } | null | undefined)?.content;
    return typeof content === 'string' ? content : undefined;
  }

  isSpecial(id: number): boolean {
    return this.#inner.get_added_tokens_decoder().get(id)?.special === true;
  }
}

/** Characters of a text up to which its ids are kept. */
const REMEMBERED = 4096;

/** GPT-2's printable stand-ins for the bytes, which byte-level vocabularies are written in. */
const BYTE_OF = new Map<string, number>();
for (let b = 0, next = 256; b < 256; b++) {
  const printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  BYTE_OF.set(String.fromCodePoint(printable ? b : next++), b);
}

function readJson(folder: string, name: string): Record<string, unknown> {
  const path = join(folder, name);
  try {
    return JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
  } catch (cause) {
    throw new ActorsError('SINKFLEX_TOKENIZER', `cannot read ${path}: ${message(cause)}`, { cause, details: { path } });
  }
}

function message(cause: unknown): string {
  return cause instanceof Error ? cause.message : String(cause);
}

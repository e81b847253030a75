// An environment of one's own: the user names a colour, the agent has to repeat it; three times an episode. Importing it registers it.
import { CounterRandom, type Environment, register, type StepResult } from 'sinkflex/actors';

const colours = ['red', 'green', 'blue', 'white'];
const roles = ['<|system|>', '<|user|>', '<|assistant|>', '<|tool|>'];
const words = ['<|end|>', '<|unk|>', ...roles, ...colours];

class Colours implements Environment {
  #random = new CounterRandom(0, 0);
  #asked = '';
  #turn = 0;

  reset({ seed }: { seed: number }) {
    this.#random = new CounterRandom(seed, 0); // the seed fixes the whole task
    this.#turn = 0;
    return { observation: [this.#ask()], info: {} };
  }

  step({ text }: { text: string }): StepResult {
    const reward = text.trim() === this.#asked ? 1 / 3 : 0;
    const terminated = ++this.#turn === 3;
    return { observation: terminated ? [] : [this.#ask()], reward, terminated, truncated: false, info: {} };
  }

  close(): void {}

  #ask() {
    this.#asked = this.#random.pick(colours);
    return { role: 'user' as const, content: this.#asked };
  }
}

register({
  name: 'colours',
  summary: 'repeat the colour',
  create: () => new Colours(),
  chat: {
    tokenizer: {
      added_tokens: words.slice(0, 6).map((content, id) => ({ id, content, special: true })),
      normalizer: null,
      pre_tokenizer: { type: 'WhitespaceSplit' },
      post_processor: null,
      decoder: { type: 'WordPiece', prefix: '##', cleanup: false },
      model: { type: 'WordLevel', vocab: Object.fromEntries(words.map((word, id) => [word, id])), unk_token: '<|unk|>' },
    },
    tokenizerConfig: {
      eos_token: '<|end|>',
      chat_template:
        "{%- for m in messages -%}{{ '<|' + m.role + '|>' + m.content }}{%- if m.role == 'assistant' -%}{{ '<|end|>' }}{%- endif -%}{%- endfor -%}" +
        "{%- if add_generation_prompt -%}{{ '<|assistant|>' }}{%- endif -%}",
    },
    parse: (text) => ({ text, toolCalls: [], finish: false }),
  },
});

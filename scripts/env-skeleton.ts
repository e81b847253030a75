// What `sinkflex env new` writes: a small shop with two tools, to be made into something else.

export function environmentSource(name: string): string {
  return `// ${name}: an environment of one's own. Importing it registers it.
import { CounterRandom, defineTool, malformedMessage, refuse, register, toolMessage, toolSet, z } from 'sinkflex/actors';

const goods = ['lamp', 'chair', 'desk', 'shelf'];

const look = defineTool({
  name: 'look',
  description: 'What is in stock, with prices.',
  parameters: z.object({}),
  execute: (_args, shop) => shop.prices,
});
const buy = defineTool({
  name: 'buy',
  description: 'Buys one thing.',
  parameters: z.object({ item: z.enum(goods).describe('what to buy') }),
  writes: true,
  execute(args, shop) {
    if (shop.bought) refuse('you have bought something already');
    shop.bought = args.item;
    return \`bought \${args.item}\`;
  },
});
const tools = toolSet([look, buy]);
const open = { reward: 0, terminated: false, truncated: false, info: {} };

class Shop {
  reset({ seed }) {
    const random = new CounterRandom(seed, 0); // the seed fixes the whole task
    this.prices = Object.fromEntries(goods.map((item) => [item, 10 + random.below(90)]));
    this.bought = undefined;
    this.turns = 0;
    return { observation: [{ role: 'user', content: 'Buy the cheapest thing, then say done.' }], tools: tools.schemas, info: {} };
  }

  async step(action) {
    if (++this.turns >= 8) return this.end(false);
    if (action.malformed !== undefined) return { ...open, observation: [malformedMessage(action)] };
    if (action.toolCalls.length === 0) return this.end(true);
    const answers = [];
    for (const call of action.toolCalls) answers.push(toolMessage(call, await tools.call(call, this)));
    return { ...open, observation: answers };
  }

  end(terminated) {
    const cheapest = Math.min(...Object.values(this.prices));
    const right = Number(terminated && this.prices[this.bought] === cheapest);
    return { observation: [], reward: right, terminated, truncated: !terminated, info: { rewardParts: { right } } };
  }

  close() {}
}

register({ name: '${name}', summary: 'buy the cheapest thing', create: () => new Shop() });
`;
}

export function environmentTestSource(name: string): string {
  return `import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkEnvironment, entry, make } from 'sinkflex/actors';
import './${name}.js';

const call = (tool, args = {}) => ({ text: '', toolCalls: [{ name: tool, arguments: args }], finish: false });
const say = (text) => ({ text, toolCalls: [], finish: false });

test('keeps what every environment must keep', async () => {
  assert.deepEqual(await checkEnvironment(entry('${name}')), []);
});

test('who buys the cheapest thing scores 1, who does nothing 0', async () => {
  const shop = make('${name}');
  await shop.reset({ seed: 1 });
  const { observation } = await shop.step(call('look'));
  const [cheapest] = Object.entries(JSON.parse(observation[0].content)).sort((a, b) => a[1] - b[1]);
  await shop.step(call('buy', { item: cheapest[0] }));
  assert.equal((await shop.step(say('done'))).reward, 1);
  await shop.reset({ seed: 1 });
  assert.equal((await shop.step(say('done'))).reward, 0);
});
`;
}

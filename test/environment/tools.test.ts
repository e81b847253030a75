/** Tools: one declaration gives the prompt's schema, the check with its messages, and the page; nothing that a policy writes throws. */
import fc from 'fast-check';
import t from 'tap';
import { z } from 'zod';
import {
  defineTool,
  makeUser,
  malformedMessage,
  refuse,
  registerUserSimulator,
  type ToolArguments,
  type ToolOutcome,
  toolMessage,
  toolSet,
  toolsPage,
  userKinds,
} from '../../actors/environment/index.ts';

interface Shop {
  stock: Map<string, number>;
}

const take = defineTool({
  name: 'take',
  description: 'Takes pieces from the shelf.',
  parameters: z.object({
    item: z.string().describe('its name, such as lamp'),
    count: z.number().int().min(1).max(9).describe('how many'),
    wrap: z.enum(['paper', 'box']).optional(),
    notes: z.array(z.object({ text: z.string() })).optional(),
  }),
  writes: true,
  execute({ item, count }, shop: Shop) {
    const left = (shop.stock.get(item) ?? refuse(`no ${item} on the shelf`)) - count;
    if (left < 0) refuse(`only ${left + count} left`);
    shop.stock.set(item, left);
    return { item, left };
  },
});
const look = defineTool({
  name: 'look',
  description: 'What there is.',
  parameters: z.object({}),
  execute: async (_, shop: Shop) => [...shop.stock.keys()].join(', '),
});
const broken = defineTool({
  name: 'broken',
  description: 'Fails.',
  parameters: z.object({}),
  execute(_args, _shop: Shop): string {
    throw new RangeError('a defect');
  },
});
const tools = toolSet<Shop>([take, look, broken]);
const shop = (): Shop => ({ stock: new Map([['lamp', 3]]) });

t.test('the schema for the prompt is the declaration', async (t) => {
  t.strictSame(tools.schemas[0], {
    type: 'function',
    function: {
      name: 'take',
      description: 'Takes pieces from the shelf.',
      parameters: {
        type: 'object',
        properties: {
          item: { type: 'string', description: 'its name, such as lamp' },
          count: { type: 'integer', minimum: 1, maximum: 9, description: 'how many' },
          wrap: { type: 'string', enum: ['paper', 'box'] },
          notes: {
            type: 'array',
            items: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] },
          },
        },
        required: ['item', 'count'],
        additionalProperties: false,
      },
    },
  });
  const args: ToolArguments<typeof take> = { item: 'lamp', count: 1 };
  t.strictSame(take.execute(args, shop()), { item: 'lamp', left: 2 });
  t.match(toolsPage(tools.tools), /### take\n\nTakes pieces from the shelf. \(writes\)\n/);
  t.match(toolsPage(tools.tools), '| `wrap` | `paper` `box` |  |  |');
});

t.test('a bad call is told what is wrong with it, and changes nothing', async (t) => {
  const world = shop();
  const say = async (args: unknown): Promise<ToolOutcome> =>
    tools.call({ name: 'take', arguments: args as Record<string, unknown> }, world);
  const cases: [unknown, string][] = [
    [{ item: 'lamp' }, 'take: count is missing (how many).'],
    [{ item: 'lamp', count: 'two' }, 'take: count must be a number, not "two".'],
    [{ item: 'lamp', count: 1.5 }, 'take: count must be an integer, not 1.5.'],
    [{ item: 'lamp', count: 0 }, 'take: count must be at least 1, not 0.'],
    [{ item: 'lamp', count: 10 }, 'take: count must be at most 9, not 10.'],
    [{ item: 'lamp', count: 1, wrap: 'foil' }, 'take: wrap must be one of "paper", "box", not "foil".'],
    [{ item: 'lamp', coutn: 1 }, 'take: count is missing (how many). there is no argument "coutn": did you mean "count"?'],
    [{ item: 'lamp', count: 1, colour: 1 }, 'take: there is no argument "colour": it takes item, count, wrap, notes.'],
    [{ item: 'lamp', count: 1, notes: [{ text: 3 }] }, 'take: notes[0].text must be a string, not 3.'],
    [{ item: 'lamp', count: 1, notes: 'x'.repeat(100) }, `take: notes must be an array, not "${'x'.repeat(56)}....`],
    [null, 'take: the arguments must be an object, not null.'],
    [[1], 'take: the arguments must be an object, not [1].'],
  ];
  for (const [args, content] of cases) t.strictSame(await say(args), { content, error: true, refused: 'invalid_arguments' }, content);
  t.strictSame(await say({ item: 'sofa', count: 1 }), { content: 'no sofa on the shelf', error: true }, 'a refusal of the tool itself');
  t.strictSame(await say({ item: 'lamp', count: 4 }), { content: 'only 3 left', error: true });
  t.equal(world.stock.get('lamp'), 3);
  t.strictSame(await say({ item: 'lamp', count: 2 }), { content: '{"item":"lamp","left":1}', error: false });
  t.strictSame(await tools.call({ name: 'look', arguments: {} }, world), { content: 'lamp', error: false });
  t.strictSame(await tools.call({ name: 'tkae', arguments: {} }, world), {
    content: 'there is no tool "tkae": did you mean "take"?',
    error: true,
    refused: 'unknown_tool',
  });
  t.match(await tools.call({ name: 'constructor', arguments: {} }, world), { refused: 'unknown_tool' });
});

t.test('any arguments are answered; only a defect of a tool is thrown', async (t) => {
  await fc.assert(
    fc.asyncProperty(fc.constantFrom('take', 'look', 'none', '__proto__'), fc.jsonValue(), async (name, args) => {
      const { content } = await tools.call({ name, arguments: args as Record<string, unknown> }, shop());
      return typeof content === 'string' && content !== '';
    }),
    { seed: 1, numRuns: 500 },
  );
  t.throws(() => tools.call({ name: 'broken', arguments: {} }, shop()), { name: 'RangeError' });
  t.throws(() => toolSet([look, look]), /two tools are named look/);
  t.throws(() => defineTool({ ...take, name: 'a tool' }), /no name for a tool/);
});

t.test('observations of calls', async (t) => {
  t.strictSame(toolMessage({ name: 'look', arguments: {}, id: 'c1' }, { content: 'x', error: false }), {
    role: 'tool',
    name: 'look',
    content: 'x',
    toolCallId: 'c1',
  });
  t.match(malformedMessage({ text: '', toolCalls: [], finish: false, malformed: 'a tool call has no name' }), {
    role: 'tool',
    content: 'The call could not be read: a tool call has no name.',
  });
});

t.test('users are made by kind', async (t) => {
  t.equal(makeUser('solo'), undefined);
  registerUserSimulator('echo', () => ({
    kind: 'echo',
    start() {},
    reply: (incoming) => ({ text: incoming.at(-1)?.content ?? 'hello' }),
    close() {},
  }));
  t.strictSame(userKinds()[0], 'solo');
  t.equal(makeUser('echo')?.kind, 'echo');
  t.throws(() => makeUser('eco'), { code: 'SINKFLEX_ENVIRONMENT_OPTION', message: /did you mean "echo"/ });
  t.throws(() => registerUserSimulator('solo', () => ({}) as never), { code: 'SINKFLEX_ENVIRONMENT_TAKEN' });
});

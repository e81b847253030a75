/**
 * A recorded exchange of tau2-bench's own runner (commit a2c02472: orchestrator, agent and simulated user of the domain mock) with an
 * OpenAI-compatible endpoint, over OpenAI's Python client 3.22 as LiteLLM's provider `openai/` uses it. Fields, order, nulls and headers as they
 * came; texts and tools are in words of our own.
 */

/** What is there in every request. */
export const HEADERS = {
  accept: 'application/json',
  'content-type': 'application/json',
  'user-agent': 'OpenAI/Python 3.22.1',
  'x-stainless-lang': 'python',
  'x-stainless-package-version': '3.22.1',
  'x-stainless-async': 'false',
  'x-stainless-retry-count': '0',
  'x-stainless-read-timeout': '600',
};

const tools = [
  {
    type: 'function',
    function: {
      name: 'add_task',
      description: 'Adds a task.',
      parameters: {
        properties: {
          user_id: { description: 'Whose it is.', title: 'User Id', type: 'string' },
          title: { description: 'What it is called.', title: 'Title', type: 'string' },
          description: { default: null, description: 'More about it.', title: 'Description', type: 'string' },
        },
        required: ['user_id', 'title'],
        title: 'parameters',
        type: 'object',
      },
    },
  },
];
const sampling = { model: 'byte-model', max_tokens: 24, seed: 7, temperature: 0 };
const greeting = 'Hello, what can I do?';
const policy = { role: 'system', content: 'You keep lists of tasks.' };
const call = {
  id: 'call_1',
  name: 'add_task',
  function: { name: 'add_task', arguments: '{"x": 1, "user_id": "user_7", "title": "Milk"}' },
  type: 'function',
};

/** In their order: the user's first turn, the agent's, the agent's after its call, the user's again. */
export const REQUESTS = [
  {
    messages: [
      { role: 'system', content: 'You want a task.' },
      { role: 'user', content: greeting },
    ],
    ...sampling,
  },
  {
    messages: [policy, { role: 'assistant', content: greeting, tool_calls: null }, { role: 'user', content: 'Put milk on my list.' }],
    ...sampling,
    tool_choice: 'auto',
    tools,
  },
  {
    messages: [
      policy,
      { role: 'assistant', content: greeting, tool_calls: null },
      { role: 'user', content: 'Put milk on my list.' },
      { role: 'assistant', content: null, tool_calls: [call] },
      { role: 'tool', content: '{"task_id": "task_2", "title": "Milk"}', tool_call_id: 'call_1' },
    ],
    ...sampling,
    tool_choice: 'auto',
    tools,
  },
  {
    messages: [
      { role: 'system', content: 'You want a task.' },
      { role: 'user', content: greeting },
      { role: 'assistant', content: 'Put milk on my list.', tool_calls: null },
      { role: 'user', content: 'It is there.' },
    ],
    ...sampling,
  },
] as const;

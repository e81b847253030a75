/** Tools that every domain has. */
import { z } from 'zod';
import { calculate } from './python/calculate.ts';
import { type Tau2Tool, tau2Tool } from './toolkit.ts';

export function calculateTool<W>(): Tau2Tool<W> {
  return tau2Tool({
    name: 'calculate',
    kind: 'generic',
    description: 'Evaluates an arithmetic expression.',
    parameters: z.object({ expression: z.string().describe("numbers, + - * /, parentheses and spaces, such as '2 + 2'") }),
    run: (_world, { expression }) => calculate(expression),
  });
}

export function transferTool<W>(): Tau2Tool<W> {
  return tau2Tool({
    name: 'transfer_to_human_agents',
    kind: 'generic',
    description:
      'Hands the user over to a human agent. Only where the user asks for one, or where policy and tools do not let you solve the issue.',
    parameters: z.object({ summary: z.string().describe("what the user's issue is") }),
    run: () => 'Transfer successful',
  });
}

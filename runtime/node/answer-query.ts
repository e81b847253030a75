// What an agent answers to those who look at it, or who want a fault in it.
import type { FromHead, HeadLink } from '../control/index.ts';
import { encodeError } from '../wire/index.ts';
import type { Agent } from './agent.ts';

type Query = FromHead & { t: 'query' };

export async function answerQuery(agent: Agent, head: HeadLink, query: Query): Promise<void> {
  const { worker, request } = query;
  try {
    head.send({ t: 'reply', worker, request, answer: await answerOf(agent, query) });
  } catch (error) {
    head.send({ t: 'reply', worker, request, error: encodeError(error) });
  }
}

async function answerOf(agent: Agent, { worker, question, timeoutMs }: Query): Promise<unknown> {
  switch (question.ask) {
    case 'workers':
      return agent.workers();
    case 'stack':
      return agent.stack({ worker: question.worker }, timeoutMs);
    case 'fault': {
      // Loaded when it is asked for: few runs want it.
      const { perform } = await import('../faults/orders.ts');
      return perform(question.order, (actor) => agent.workers().find(({ actors }) => actors.includes(actor))?.pid);
    }
    default:
      return agent.ask(worker, question, timeoutMs);
  }
}

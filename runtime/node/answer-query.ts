// What an agent answers to those who look at it, or who want a fault in it.
import type { FromHead, HeadLink } from '../control/index.ts';
import type { Done } from '../links/index.ts';
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

/** What was done to messages on links of their own. Those that do not answer have none to tell of. */
async function messagesOfWorkers(agent: Agent, timeoutMs: number): Promise<Done[]> {
  const asked = agent.workers().map(({ worker }) => agent.ask(worker, { ask: 'messages' }, timeoutMs / 2));
  return (await Promise.allSettled(asked)).flatMap((each) => (each.status === 'fulfilled' ? [each.value as Done] : []));
}

function sum(of: readonly Done[]): Done {
  const total = { ...of[0]! };
  for (const each of of.slice(1)) for (const key of Object.keys(total) as (keyof Done)[]) total[key] += each[key];
  return total;
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
      const { order } = question;
      const done = perform(order, (actor) => agent.workers().find(({ actors }) => actors.includes(actor))?.pid);
      if (order.do === 'links') agent.tell({ t: 'emulate', order });
      return done === undefined ? undefined : sum([done, ...(await messagesOfWorkers(agent, timeoutMs))]);
    }
    default:
      return agent.ask(worker, question, timeoutMs);
  }
}

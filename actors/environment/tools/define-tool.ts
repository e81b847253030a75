/**
 * Tools, declared once: from one zod schema come the JSON schema for the prompt, the check of the arguments with a message that the policy
 * can act on, the types, and the documentation.
 */
import { z } from 'zod';
import type { MaybePromise, ToolSchema } from '../types.ts';
import { explainIssues } from './explain.ts';

/** What a tool answered. A refusal is an answer like another: the policy reads it. */
export interface ToolOutcome {
  /** As the policy reads it. */
  content: string;
  error: boolean;
  /** Why no tool ran, where none did: nobody has this name, or the arguments do not fit its schema. */
  refused?: 'unknown_tool' | 'invalid_arguments';
}

/** Thrown by a tool to refuse: its message is what the policy reads. Any other exception is a defect of the environment. */
export class ToolError extends Error {
  override readonly name = 'ToolError';
}

export interface ToolDefinition<P extends z.ZodObject, C, R> {
  /** Letters, digits, `_` and `-`, at most 64: what model servers accept. */
  name: string;
  /** For the policy, in the prompt. */
  description: string;
  /** Each parameter's `.describe()` goes into the prompt too. */
  parameters: P;
  /** Whether it may change the world; false by default. */
  writes?: boolean;
  /** Strings are answered as they are, anything else as JSON. */
  execute(args: z.output<P>, context: C): MaybePromise<R>;
}

/** A declared tool. `C` is what its `execute` works on: the world of one episode. */
export interface Tool<C = unknown> {
  readonly name: string;
  readonly description: string;
  readonly writes: boolean;
  readonly parameters: z.ZodObject;
  /** For the prompt: a function as OpenAI's API writes it. */
  readonly schema: ToolSchema;
  /** The arguments as `execute` gets them, or what is wrong with them. */
  check(args: unknown): { value: Record<string, unknown> } | { problem: string };
  /** Checks the arguments, then runs. Throws only what is not a ToolError. */
  run(args: unknown, context: C): MaybePromise<ToolOutcome>;
}

/** A tool with the types of its arguments and result. */
export type DefinedTool<P extends z.ZodObject, C, R> = Tool<C> & { execute(args: z.output<P>, context: C): MaybePromise<R> };

/** The arguments that a tool's `execute` gets. */
export type ToolArguments<T> = T extends { execute(args: infer A, context: never): unknown } ? A : never;

const NAME = /^[A-Za-z0-9_-]{1,64}$/;

/**
 * Declares a tool.
 *
 * @example
 * const lookUp = defineTool({
 *   name: 'look_up',
 *   description: 'The state of an order.',
 *   parameters: z.object({ order: z.string().describe('its number, such as A12') }),
 *   execute: ({ order }, shop: Shop) => shop.orders.get(order) ?? refuse(`no order ${order}`),
 * });
 */
export function defineTool<P extends z.ZodObject, C, R>(o: ToolDefinition<P, C, R>): DefinedTool<P, C, R> {
  if (!NAME.test(o.name)) throw new TypeError(`defineTool: "${o.name}" is no name for a tool: use letters, digits, _ and -, at most 64`);
  // An argument that is not declared is a slip worth telling, not one to drop.
  const strict = o.parameters.strict();
  const { $schema: _, ...parameters } = z.toJSONSchema(strict, { io: 'input', target: 'draft-7', unrepresentable: 'any' });
  const check: Tool<C>['check'] = (args) => {
    const parsed = strict.safeParse(args);
    return parsed.success ? { value: parsed.data } : { problem: explainIssues(o.name, o.parameters, args, parsed.error.issues) };
  };
  return {
    name: o.name,
    description: o.description,
    writes: o.writes ?? false,
    parameters: o.parameters,
    schema: { type: 'function', function: { name: o.name, description: o.description, parameters } },
    execute: o.execute,
    check,
    run(args, context) {
      const checked = check(args);
      if ('problem' in checked) return { content: checked.problem, error: true, refused: 'invalid_arguments' };
      return outcomeOf(() => o.execute(checked.value as z.output<P>, context));
    },
  };
}

/** Refuses, inside a tool: `orders.get(id) ?? refuse('no such order')`. */
export function refuse(message: string): never {
  throw new ToolError(message);
}

function outcomeOf(run: () => unknown): MaybePromise<ToolOutcome> {
  try {
    const value = run();
    if (value instanceof Promise) return value.then(answered, refused);
    return answered(value);
  } catch (error) {
    return refused(error);
  }
}

function answered(value: unknown): ToolOutcome {
  return { content: typeof value === 'string' ? value : (JSON.stringify(value) ?? 'null'), error: false };
}

function refused(error: unknown): ToolOutcome {
  if (error instanceof ToolError) return { content: error.message, error: true };
  throw error;
}

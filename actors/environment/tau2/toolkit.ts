/**
 * The tools of one side of a domain, called as the benchmark's Python calls them: no check of a schema first, arguments bound by name, every
 * exception an answer `Error: ...`. Declared with defineTool, for the prompt.
 */
import type { z } from 'zod';
import { defineTool } from '../tools/index.ts';
import type { ToolSchema } from '../types.ts';
import { type PythonError, typeError } from './python/values.ts';

/** `write` tools are replayed by the evaluator, others are not. */
export type ToolKind = 'read' | 'write' | 'generic';

export interface Tau2Tool<W> {
  readonly name: string;
  readonly kind: ToolKind;
  readonly schema: ToolSchema;
  /** In the order of the signature. */
  readonly parameters: readonly string[];
  readonly required: readonly string[];
  /** Answers what the policy reads. Raises PythonError. */
  run(world: W, args: Record<string, unknown>): string;
}

interface Declaration<W, S extends z.ZodRawShape> {
  name: string;
  kind: ToolKind;
  description: string;
  parameters: z.ZodObject<S>;
  /** What was passed, unchecked; absent where it was not. */
  run(world: W, args: { [K in keyof S]: unknown }): string;
}

export function tau2Tool<W, S extends z.ZodRawShape>(o: Declaration<W, S>): Tau2Tool<W> {
  const { schema } = defineTool({
    name: o.name,
    description: o.description,
    parameters: o.parameters,
    writes: o.kind === 'write',
    execute: (): string => '',
  });
  const { additionalProperties: _, ...rest } = schema.function.parameters;
  const { required = [] } = rest as { required?: string[] };
  return {
    name: o.name,
    kind: o.kind,
    schema: { type: 'function', function: { ...schema.function, parameters: rest } },
    parameters: Object.keys(o.parameters.shape),
    required,
    run: o.run as Tau2Tool<W>['run'],
  };
}

/** Methods that tasks call to set a world up or to look at it; not tools. */
export type Helper<W> = (world: W, args: Record<string, unknown>) => unknown;

export class Toolkit<W> {
  /** As Python's texts name it. */
  readonly className: string;
  readonly #tools: ReadonlyMap<string, Tau2Tool<W>>;
  readonly #helpers: ReadonlyMap<string, Helper<W>>;

  constructor(className: string, tools: readonly Tau2Tool<W>[], helpers: Record<string, Helper<W>> = {}) {
    this.className = className;
    this.#tools = new Map(tools.map((tool) => [tool.name, tool]));
    this.#helpers = new Map(Object.entries(helpers));
  }

  get names(): string[] {
    return [...this.#tools.keys()];
  }

  /** By name, as the benchmark's prompts list them. */
  schemas(include?: readonly string[]): ToolSchema[] {
    const chosen = [...this.#tools.values()].filter((tool) => include === undefined || include.includes(tool.name));
    return chosen.map((tool) => tool.schema);
  }

  has(name: string): boolean {
    return this.#tools.has(name);
  }

  kind(name: string): ToolKind | undefined {
    return this.#tools.get(name)?.kind;
  }

  /** Raises PythonError; its text is what the benchmark answers after `Error: `. */
  call(world: W, name: string, args: Record<string, unknown>): string {
    const tool = this.#tools.get(name)!;
    this.#bind(tool, args);
    return tool.run(world, args);
  }

  /** A tool or helper by name, for a task's own set-up and assertions; undefined where there is none. */
  method(name: string): Helper<W> | undefined {
    const helper = this.#helpers.get(name);
    if (helper) return helper;
    return this.#tools.has(name) ? (world, args) => this.call(world, name, args) : undefined;
  }

  /** What CPython says of a call that does not fit the signature; unexpected names first. */
  #bind(tool: Tau2Tool<W>, args: Record<string, unknown>): void {
    const where = `${this.className}.${tool.name}()`;
    for (const name of Object.keys(args)) {
      if (!tool.parameters.includes(name)) throw typeError(`${where} got an unexpected keyword argument '${name}'`);
    }
    const missing = tool.required.filter((name) => !Object.hasOwn(args, name)).map((name) => `'${name}'`);
    if (missing.length === 0) return;
    const listed = missing.length < 3 ? missing.join(' and ') : `${missing.slice(0, -1).join(', ')}, and ${missing.at(-1)}`;
    throw typeError(`${where} missing ${missing.length} required positional argument${missing.length === 1 ? '' : 's'}: ${listed}`);
  }
}

/** Names that the benchmark's own call passes; an argument of that name collides before any tool is looked up. */
export function reservedArgument(args: Record<string, unknown>): PythonError | undefined {
  for (const name of ['tool_name', 'requestor', 'self']) {
    if (Object.hasOwn(args, name)) return typeError(`make_tool_call() got multiple values for argument '${name}'`);
  }
  return undefined;
}

/** Tools in the order in which the original's prompts list them. */
export function inOrder<W>(names: readonly string[], tools: readonly Tau2Tool<W>[]): Tau2Tool<W>[] {
  return names.map((name) => {
    const tool = tools.find((candidate) => candidate.name === name);
    if (!tool) throw new Error(`there is no tool ${name}`);
    return tool;
  });
}

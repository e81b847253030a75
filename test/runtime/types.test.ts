// What carries over from a class or a function to its handle, and what does not. Every line here is checked by the compiler: a line that is
// said to be an error and compiles fails the build. The test itself only says that the file was built.
import t from 'tap';
import {
  type ActorGroup,
  type ActorHandle,
  createQueue,
  defineActor,
  defineTask,
  type ObjectRef,
  type ObjectStream,
  type QueueHandle,
  spawn,
  spawnGroup,
  task,
} from '../../runtime/index.ts';

/** Fails to compile unless both types are the same. */
function same<A, B>(..._proof: (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? [] : [never]): void {}

interface Message {
  role: 'user' | 'assistant';
  parts: (string | { image: Uint8Array })[];
  replies: Message[];
}

class Model {
  readonly secret = 1;
  #n = 0;
  readonly name: string;
  constructor(name: string, shards: Float32Array[] = []) {
    this.name = `${name}${shards.length}`;
  }
  start(): void {}
  checkpoint(): number {
    return this.#n;
  }
  plain(a: number, b?: string): Map<string, number[]> {
    return new Map([[b ?? '', [a]]]);
  }
  async later(messages: readonly Message[], ...weights: Float32Array[]): Promise<{ loss: number }> {
    return { loss: messages.length + weights.length };
  }
  *tokens(prompt: string): Generator<number, void> {
    yield prompt.length;
  }
  async *lines(): AsyncGenerator<string, void> {}
  self(other: ActorHandle<typeof ModelActor>, ref: ObjectRef<number>): ActorHandle<typeof ModelActor> {
    void ref;
    return other;
  }
  anything(value: unknown): unknown {
    return value;
  }
  echo<T>(value: T): T {
    return value;
  }
  over(value: string): string;
  over(value: number): number;
  over(value: string | number): string | number {
    return value;
  }
  // Parameters whose values cannot be sent:
  callback(onToken: (token: number) => void): void {
    onToken(1);
  }
  options(options: { depth: { hooks?: { done: () => void } } }): void {
    void options;
  }
  symbol(tag: symbol): void {
    void tag;
  }
  weak(cache: WeakMap<object, number>): void {
    void cache;
  }
  instances(list: Model[]): void {
    void list;
  }
  pattern(regexp: RegExp): void {
    void regexp;
  }
  signal(signal: AbortSignal): void {
    void signal;
  }
  type(kind: typeof Model): void {
    void kind;
  }
  map(byName: Map<string, () => void>): void {
    void byName;
  }
  group(members: ActorGroup<Model>): void {
    void members;
  }
}
const ModelActor = defineActor(import.meta.url, 'ModelActor', Model, {
  concurrencyGroups: { control: { maxConcurrency: 1, methods: ['plain', 'later'] } },
});

export function definitions(): void {
  defineActor(import.meta.url, 'ModelActor', Model, {
    concurrencyGroups: {
      // @ts-expect-error a hook belongs to the runtime
      hooks: { maxConcurrency: 1, methods: ['checkpoint'] },
      // @ts-expect-error a field is no method
      fields: { maxConcurrency: 1, methods: ['secret'] },
    },
  });
}

const double = defineTask(import.meta.url, 'double', async (value: number, tags: Set<string>): Promise<number> => value * tags.size);
const walk = defineTask(import.meta.url, 'walk', function* (root: { visit: () => void }): Generator<string, void> {
  root.visit();
  yield 'visited';
});

export function handles(model: ActorHandle<typeof ModelActor>): void {
  same<ReturnType<typeof model.plain>, ObjectRef<Map<string, number[]>>>();
  same<Parameters<typeof model.plain>, [a: number | ObjectRef<number>, b?: string | undefined | ObjectRef<string | undefined>]>();
  same<ReturnType<typeof model.later>, ObjectRef<{ loss: number }>>();
  same<ReturnType<typeof model.tokens>, ObjectStream<number>>();
  same<ReturnType<typeof model.lines>, ObjectStream<string>>();
  same<ReturnType<typeof model.self>, ObjectRef<ActorHandle<typeof ModelActor>>>();
  same<ActorHandle<typeof ModelActor>, ActorHandle<typeof Model>>();
  same<ActorHandle<typeof ModelActor>, ActorHandle<Model>>();
  const messages: Message[] = [];
  model.later(messages, new Float32Array(1));
  model.self(model, model.anything(1) as ObjectRef<ObjectRef<number>>);
  // @ts-expect-error a property of the instance is not on the handle
  model.name;
  // @ts-expect-error nor is a hook
  model.checkpoint();
  // @ts-expect-error wrong type
  model.plain('1');
  // @ts-expect-error too many
  model.plain(1, 'a', 2);
  // @ts-expect-error a ref of another type
  model.plain(model.tokens('a'));
}

/** What handles lose: parameters and results of generic methods are those of their constraint, of overloads only the last is seen. */
export function losses(model: ActorHandle<typeof ModelActor>): void {
  same<ReturnType<typeof model.echo>, ObjectRef<unknown>>();
  same<ReturnType<typeof model.over>, ObjectRef<number>>();
  // @ts-expect-error the first overload is lost
  model.over('text');
}

export function obstacles(model: ActorHandle<typeof ModelActor>): void {
  // @ts-expect-error a function
  model.callback((token) => token);
  // @ts-expect-error a function inside
  model.options({ depth: {} });
  // @ts-expect-error a symbol
  model.symbol(Symbol('x'));
  // @ts-expect-error tied to its objects
  model.weak(new WeakMap());
  // @ts-expect-error an instance would arrive without its methods
  model.instances([new Model('x')]);
  // @ts-expect-error a regular expression
  model.pattern(/x/);
  // @ts-expect-error signals go with withOptions()
  model.signal(new AbortController().signal);
  // @ts-expect-error a class
  model.type(Model);
  // @ts-expect-error functions in a map
  model.map(new Map());
  // @ts-expect-error its members can be sent
  model.group(spawnGroup(ModelActor, 1, { args: ['x'] }));
  // The obstacle is in the message of the compiler.
  const refused: Parameters<typeof model.callback>[0] extends { readonly [key: symbol]: infer Why } ? Why : never = undefined as never;
  void refused;
}

export function spawning(): void {
  spawn(ModelActor, { args: ['x', [new Float32Array(1)]] });
  spawn(ModelActor, { args: [spawn(ModelActor, { args: ['y'] }).anything(1) as ObjectRef<string>] });
  // @ts-expect-error the constructor needs its argument
  spawn(ModelActor);
  // @ts-expect-error of the right type
  spawn(ModelActor, { args: [1] });
  const group = spawnGroup(ModelActor, 2, { args: (rank): [string] => [`${rank}`] });
  same<ReturnType<typeof group.call.plain>, Promise<Map<string, number[]>[]>>();
  const queue = createQueue<Message>();
  same<typeof queue, QueueHandle<Message>>();
  // @ts-expect-error not a message
  queue.put({ role: 'system' });
}

export function tasks(): void {
  same<ReturnType<ReturnType<typeof task<(a: number) => Promise<string>>>>, ObjectRef<string>>();
  const result: ObjectRef<number> = task(double, { cpus: 2 })(1, new Set(['a']));
  task(double)(result, new Set());
  // @ts-expect-error wrong type
  task(double)('1', new Set());
  // @ts-expect-error no such option
  task(double, { maxRestarts: 1 });
  // @ts-expect-error a function inside
  task(walk)({ visit() {} });
}

t.test('types are checked by the compiler', (t) => {
  for (const checked of [definitions, handles, losses, obstacles, spawning, tasks]) t.type(checked, 'function');
  t.end();
});

// Workers of a simulated node: no processes, but they start late, fail to start, take their time to stop, or do not stop at all, as real
// ones do. Everything that runs is in the register of the world, where it is judged.
import { type ActorSpec, deadline, type FromAgent, ownerActor, type ToAgent } from '../../control/index.ts';
import type { WorkerRecord } from '../../node/records.ts';
import type { WorkerNumbers } from '../../node/worker-numbers.ts';
import type { WorkersEvents, WorkersFace } from '../../node/workers.ts';
import { encodeError } from '../../wire/index.ts';
import type { VirtualLease } from './lease.ts';
import { specOf } from './spec.ts';
import type { Process } from './time.ts';
import type { World } from './world.ts';

interface Instance {
  spec: ActorSpec;
  incarnation: number;
}

/** How often a worker looks at the lease (worker/lease-guard.ts). */
const LOOK_MS = 250;

export class VirtualWorkers implements WorkersFace {
  readonly #world: World;
  readonly #process: Process;
  /** What the workers themselves do goes on while their agent is stopped. */
  readonly #own: Process;
  readonly #lease: VirtualLease;
  readonly #node: string;
  readonly #numbers: WorkerNumbers;
  readonly #events: WorkersEvents;
  /** Workers that have ended, and nobody has heard of it. */
  #ending = 0;
  readonly #workers = new Map<number, { record: WorkerRecord; end: (exitCode: number) => void }>();

  constructor(
    world: World,
    process: Process,
    own: Process,
    lease: VirtualLease,
    node: string,
    numbers: WorkerNumbers,
    events: WorkersEvents,
  ) {
    this.#world = world;
    this.#process = process;
    this.#own = own;
    this.#lease = lease;
    this.#node = node;
    this.#numbers = numbers;
    this.#events = events;
    // Workers end with their agent.
    process.onEnd(() => {
      own.kill();
      for (const worker of this.#workers.keys()) world.register.ended(worker);
    });
  }

  get(worker: number): WorkerRecord | undefined {
    return this.#workers.get(worker)?.record;
  }

  for(spec: ActorSpec): WorkerRecord {
    const { dice, register } = this.#world;
    const worker = this.#numbers.next();
    let over = false;
    const { epoch } = this.#lease;
    let instance: Instance | undefined;
    const end = (exitCode: number): void => {
      if (over) return;
      over = true;
      this.#workers.delete(worker);
      register.ended(worker);
      this.#ending++;
      this.#process.after(dice.delay(2), () => {
        this.#ending--;
        this.#events.ended(record, { exitCode, lastStderr: [] });
      });
    };
    const say = (message: ToAgent): void =>
      void this.#process.after(dice.delay(0.2), () => {
        if (!over || message.t === 'ended') this.#events.message(message, record);
      });
    const guard = (): boolean => {
      if (this.#lease.leftMs() <= 0 || this.#lease.epoch !== epoch) end(75);
      return !over;
    };
    const look = (): void => void this.#own.after(LOOK_MS, () => guard() && look());
    look();
    const record: WorkerRecord = {
      worker,
      name: spec.name,
      isolation: spec.isolation,
      hosted: new Set(),
      health: 'ok',
      carrier: {
        pid: worker,
        send: () => {},
        destroy: () => void this.#own.after(dice.delay(1), () => end(137)),
        expect: () => {},
        stack: () => Promise.resolve({ state: 'silent', frames: [] }),
      },
      send: (message: FromAgent) =>
        void this.#own.after(dice.delay(0.2), () => {
          if (over || !guard()) return;
          if (message.t === 'start') {
            instance = message;
            this.#begin(message, worker, say, end);
          } else if (message.t === 'stop' && instance !== undefined) this.#stop(message, instance, say, end);
        }),
    };
    this.#workers.set(worker, { record, end });
    return record;
  }

  #begin(instance: Instance, worker: number, say: (message: ToAgent) => void, end: (exitCode: number) => void): void {
    const { dice, register } = this.#world;
    const { spec, incarnation } = instance;
    const { actor } = spec;
    register.began({ actor, incarnation, name: spec.name, node: this.#node, cpus: spec.request.resources.cpus ?? 0, worker });
    this.#own.after(dice.delay(30), () => {
      if (dice.chance(0.03)) {
        say({ t: 'ended', actor, incarnation, reason: 'constructor', error: encodeError(new Error('it would not')) });
        end(1);
        return;
      }
      say({ t: 'started', actor, incarnation });
      // Some actors spawn others, which live as long as they do.
      if (dice.chance(0.1)) {
        const child = worker * 2 ** 24 + 1;
        const owned = { owner: ownerActor(actor, incarnation), maxRestarts: dice.below(2), request: spec.request };
        this.#world.spawned.add(child);
        say({ t: 'spawn', spec: specOf(child, owned), watch: false });
      }
    });
  }

  #stop(
    message: FromAgent & { t: 'stop' },
    { spec, incarnation }: Instance,
    say: (message: ToAgent) => void,
    end: (exitCode: number) => void,
  ): void {
    const { dice } = this.#world;
    if (message.actor !== spec.actor || message.incarnation !== incarnation || dice.chance(0.1)) return; // it will not listen
    if (message.mode === 'drain')
      say({
        t: 'checkpoint',
        actor: spec.actor,
        incarnation,
        state: { header: new Uint8Array([incarnation]), sections: new Uint8Array() },
      });
    this.#own.after(dice.delay(message.mode === 'kill' ? 1 : 20), () => {
      say({ t: 'ended', actor: spec.actor, incarnation, reason: 'killed' });
      end(0);
    });
  }

  /** One of them ends by itself. */
  crash(): void {
    const worker = this.#world.dice.pick([...this.#workers.values()]);
    worker?.end(1);
  }

  list(): [] {
    return [];
  }

  onChange(): () => void {
    return () => {};
  }

  ask(): Promise<unknown> {
    return Promise.reject(new Error('nobody looks at a simulated worker'));
  }

  reply(): void {}

  drain(): void {}

  async close(): Promise<void> {
    this.destroy();
    const clock = this.#process.clock();
    while (this.#ending > 0) await deadline(clock, 1).over;
  }

  destroy(): void {
    for (const { end } of [...this.#workers.values()]) end(137);
  }
}

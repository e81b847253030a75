// What truly runs in the simulated world, whatever anybody believes, and what must hold of it at every moment.

export interface Running {
  actor: number;
  incarnation: number;
  name: string;
  node: string;
  cpus: number;
  worker: number;
}

export class Violation extends Error {
  override name = 'Violation';
}

export class Register {
  readonly #byWorker = new Map<number, Running>();
  readonly #byActor = new Map<number, Running>();
  /** Highest incarnation of each actor that ever ran. */
  readonly #begun = new Map<number, number>();
  /** Of each node: cpus in all, and in use. */
  readonly #nodes = new Map<string, { total: number; used: number }>();
  starts = 0;

  node(node: string, cpus: number): void {
    this.#nodes.set(node, { total: cpus, used: 0 });
  }

  began(running: Running): void {
    const { actor, incarnation, node, cpus, worker, name } = running;
    const other = this.#byActor.get(actor);
    if (other !== undefined) throw new Violation(`two of actor ${actor} run: ${where(other)} and ${where(running)}`);
    if ((this.#begun.get(actor) ?? 0) >= incarnation) throw new Violation(`incarnation ${incarnation} of actor ${actor} was started again`);
    for (const each of this.#byActor.values())
      if (each.name === name) throw new Violation(`two actors of the name ${name} run: ${where(each)} and ${where(running)}`);
    const here = this.#nodes.get(node)!;
    here.used += cpus;
    if (here.used > here.total + 1e-9) throw new Violation(`node ${node} has ${here.total} cpus and runs actors of ${here.used}`);
    this.#begun.set(actor, incarnation);
    this.#byActor.set(actor, running);
    this.#byWorker.set(worker, running);
    this.starts++;
  }

  ended(worker: number): void {
    const running = this.#byWorker.get(worker);
    if (running === undefined) return;
    this.#byWorker.delete(worker);
    this.#byActor.delete(running.actor);
    this.#nodes.get(running.node)!.used -= running.cpus;
  }

  of(actor: number): Running | undefined {
    return this.#byActor.get(actor);
  }

  all(): IterableIterator<Running> {
    return this.#byActor.values();
  }
}

const where = ({ incarnation, node, worker }: Running): string => `incarnation ${incarnation} in worker ${worker} of ${node}`;

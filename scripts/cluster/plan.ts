// Which actor of a run goes where, and why: the control plane itself is asked, on nodes as the launcher would bring them.
import { type PlannedActor, planPlacement, type TrainingConfig } from '../../actors/index.ts';
import { controlPlane, HOST_LABEL } from '../../runtime/index.ts';
import type { PlannedAgent } from './launcher.ts';

export interface PlacedActor extends PlannedActor {
  /** Undefined: it would wait. */
  node: string | undefined;
  /** Of the plan, and of the control plane where it would wait. */
  why: string;
}

const HOME = 'here';

export async function planRun(config: TrainingConfig, agents: readonly PlannedAgent[]): Promise<PlacedActor[]> {
  const hostOf = ({ here, node }: PlannedAgent): string => (here ? HOME : node);
  const { Cluster } = await controlPlane();
  const cluster = new Cluster({ seed: config.seed });
  for (const agent of agents)
    cluster.apply({ type: 'node-up', node: agent.node, total: { ...agent.resources }, labels: { [HOST_LABEL]: hostOf(agent) } }, 0);
  const actors = planPlacement(config, { home: HOME, nodes: agents.map((agent) => ({ node: agent.node, host: hostOf(agent) })) });
  return actors.map((actor, i): PlacedActor => {
    if (actor.kind === 'driver' || agents.length === 0) return { ...actor, node: 'this process' };
    cluster.apply(
      {
        type: 'spawn',
        actor: i,
        name: actor.name,
        definition: actor.kind,
        request: { resources: {}, labels: actor.labels ?? {}, strategy: actor.strategy ?? 'hybrid' },
        policy: { maxRestarts: 0, windowMs: 0, backoffMs: 0, backoffMaxMs: 0 },
        lifetime: 'detached',
        getIfExists: false,
      },
      0,
    );
    const node = cluster.actor(i)?.node;
    const said = cluster.explain({ actor: i })?.text ?? '';
    return { ...actor, node, why: node === undefined ? said : actor.why };
  });
}

// Who owns what this code makes: the incarnation whose code is running, or the driver.
import { type OwnerId, ownerActor } from '../control/cluster-types.ts';
import { actorScope, session } from '../worker/index.ts';

export function currentOwner(): OwnerId {
  const actor = actorScope()?.actor;
  return actor === undefined ? `driver/${session().worker}` : ownerActor(actor.id, actor.incarnation);
}

// Agents that somebody starts by hand, on any machine: the command to do so is printed, and the run waits for them.

import { resourcesOf } from './agent-words.ts';
import type { ClusterSettings, Launcher } from './launcher.ts';

export function manualLauncher(
  settings: ClusterSettings,
  write: (text: string) => unknown = (text) => process.stderr.write(text),
): Launcher {
  return {
    headHost: settings.head_host ?? '127.0.0.1',
    plan: () =>
      Array.from({ length: settings.agents ?? 1 }, (_, i) => ({
        node: `manual-${i}`,
        where: 'wherever it is started',
        here: false,
        resources: resourcesOf(settings),
      })),
    async start(agents, { url, tokenFile, certify }) {
      const tls = certify === undefined ? '' : ' --tls-ca ca.pem --tls-cert <its certificate> --tls-key <its key>';
      write(
        `waiting for ${agents.length} agents: on each host\n  sinkflex agent --join ${url} --token-file <a copy of ${tokenFile}, mode 0600>${tls}\n`,
      );
      if (certify !== undefined) {
        const { ca } = await certify('this-host');
        write(`  certificates: sinkflex certs --out ${ca.replace(/\/[^/]*$/, '')} --host <name of that host>\n`);
      }
      return { lost: new Promise<never>(() => {}), stop: async () => {} };
    },
  };
}

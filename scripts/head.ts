// `sinkflex head`: the control plane of a cluster, as a process of its own.
import { tmpdir, userInfo } from 'node:os';
import { join } from 'node:path';
import { Command, InvalidArgumentError } from 'commander';
import { startHead } from '../runtime/index.ts';
import { type HostFlags, hostOptions, onEndWanted, withHostOptions } from './host-options.ts';

/** The cluster of this user on this host, unless another folder is named. */
export const defaultFolder = (): string => join(tmpdir(), `sinkflex-cluster-${userInfo().uid}`);

function port(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 0 || value > 65_535) throw new InvalidArgumentError('0 (any free one) to 65535');
  return value;
}

export function headCommand(): Command {
  const command = new Command('head')
    .summary('run the head of a cluster: places actors and watches them')
    .description(
      'Runs in the foreground. Agents join its folder, drivers use it with init({ address }). Killed and started again on the same folder, it finds ' +
        'its actors alive. SIGTERM or Ctrl-C ends the cluster with all that runs in it.',
    )
    .option('--folder <path>', 'folder of the cluster: sockets, token, journal', defaultFolder())
    .option('--metrics-port <n>', 'serve metrics and health on this port of loopback', port)
    .option(
      '--metrics-token-file <path>',
      'file with the token that readers of metrics show (or SINKFLEX_METRICS_TOKEN_FILE); default a new one',
    )
    .option('--json', 'say where it is as one JSON object')
    .action(async (o: HostFlags & { folder: string; metricsPort?: number; metricsTokenFile?: string; json?: boolean }) => {
      const head = await startHead({
        folder: o.folder,
        ...hostOptions(o),
        ...(o.metricsPort === undefined ? {} : { metricsPort: o.metricsPort }),
        ...(o.metricsTokenFile === undefined ? {} : { metricsTokenFile: o.metricsTokenFile }),
      });
      const found = head.recovered === 0 ? '' : `, with ${head.recovered} actors of the head before it`;
      process.stdout.write(
        o.json
          ? `${JSON.stringify({ folder: head.folder, pid: process.pid, recovered: head.recovered, ...(head.url === undefined ? {} : { url: head.url }) })}\n`
          : `head of ${head.folder}${found}\n  nodes join with    sinkflex agent --join ${head.folder}\n  drivers call       init({ address: '${head.folder}' })\n${elsewhere(head)}`,
      );
      await new Promise<void>((resolve) => {
        let again = false;
        onEndWanted(o, () => {
          if (again) process.exit(130);
          again = true;
          resolve();
        });
      });
      await head.close();
      process.exitCode = 0;
      if (o.attended) process.stdin.destroy();
    });
  return withHostOptions(command, 'where other hosts join; default: this host alone');
}

function elsewhere({ folder, url }: { folder: string; url: string | undefined }): string {
  if (url === undefined) return '';
  return `  other hosts        sinkflex agent --join ${url} --token-file <a copy of ${folder}/token>\n`;
}

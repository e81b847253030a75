// Cleans up after a driver that was killed. Worker processes have a death signal of their own; what they started has none, and nobody is
// left to end it. So one small shell outlives the driver by a moment: when the pipe to it ends, it kills the process groups that are still
// listed and removes the run's folder and its memory control groups.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';

const script = `
trap '' INT TERM HUP
groups=' '
while read -r verb group; do
  case $verb in
    add) groups="$groups$group " ;;
    gone) groups="\${groups%% $group *} \${groups#* $group }" ;;
  esac
done
for group in $groups; do kill -9 "-$group" 2>/dev/null; done
rm -rf -- "$1"
# Control groups can be removed when the kernel has taken the dead out of them.
for try in 1 2 3 4 5 6 7 8 9 10; do
  left=''
  for group in "$2"*; do
    [ -d "$group" ] && { rmdir "$group" 2>/dev/null || left=1; }
  done
  [ -z "$left" ] && break
  sleep 0.1
done
`;

export class Janitor {
  readonly #shell: ChildProcess;

  /** `controlGroups`: what the paths of the run's memory control groups begin with; undefined: it has none. */
  constructor(folder: string, controlGroups?: string) {
    // A session of its own: what ends the driver's process group does not end it.
    this.#shell = spawn('/bin/sh', ['-c', script, 'sinkflex-janitor', folder, controlGroups ?? '/dev/null/none'], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
      env: {},
    });
    this.#shell.on('error', (error) => process.stderr.write(`[sinkflex] no janitor: ${error.message}\n`));
    this.#shell.stdin!.on('error', () => {});
    this.#shell.unref();
    (this.#shell.stdin as unknown as { unref(): void }).unref();
  }

  add(group: number): void {
    this.#shell.stdin!.write(`add ${group}\n`);
  }

  gone(group: number): void {
    this.#shell.stdin!.write(`gone ${group}\n`);
  }

  /** Ends it; resolves when it is gone. */
  async close(): Promise<void> {
    if (this.#shell.exitCode !== null || this.#shell.signalCode !== null || this.#shell.pid === undefined) return;
    const exited = once(this.#shell, 'exit');
    this.#shell.ref();
    this.#shell.stdin!.end();
    await exited;
  }
}

/**
 * Clears up after an owner that was killed. The sandboxes themselves die with it; what stays are empty control groups, slot files and the
 * folder of launch files. One small shell outlives the owner by a moment and removes them; where it is killed too, the next start does.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';

const script = `
trap '' INT TERM HUP
read -r nothing
for try in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  left=''
  for base in $GROUPS_OF; do
    for group in "$base"-*; do
      [ -d "$group" ] || continue
      [ -e "$group/cgroup.kill" ] && echo 1 2>/dev/null >"$group/cgroup.kill"
      while read -r pid; do kill -9 "$pid" 2>/dev/null; done <"$group/cgroup.procs"
      rmdir "$group" 2>/dev/null || left=1
    done
  done
  [ -z "$left" ] && break
  sleep 0.1
done
rm -rf -- "$FOLDER/$PREFIX"
for slot in "$FOLDER"/slot-*; do
  grep -q -F -- "$PREFIX-" "$slot" 2>/dev/null && rm -f -- "$slot"
done
exit 0
`;

export interface JanitorPlace {
  /** Of the slots. */
  folder: string;
  /** What the owner's groups and its own folder are called. */
  prefix: string;
  /** Paths that the owner's groups begin with. */
  groups: readonly string[];
}

export class Janitor {
  readonly #shell: ChildProcess;

  constructor({ folder, prefix, groups }: JanitorPlace) {
    // A session of its own: what ends the owner's process group does not end it.
    this.#shell = spawn('/bin/sh', ['-c', script, 'sinkflex-sandbox-janitor'], {
      stdio: ['pipe', 'ignore', 'ignore'],
      detached: true,
      env: { PATH: '/usr/sbin:/usr/bin:/sbin:/bin', FOLDER: folder, PREFIX: prefix, GROUPS_OF: groups.join(' ') },
    });
    this.#shell.on('error', (error) => process.stderr.write(`[sinkflex] no janitor for sandboxes: ${error.message}\n`));
    this.#shell.stdin!.on('error', () => {});
    this.#shell.unref();
    (this.#shell.stdin as unknown as { unref(): void }).unref();
  }

  /** Lets it clear up; resolves when it is gone. */
  async close(): Promise<void> {
    if (this.#shell.exitCode !== null || this.#shell.signalCode !== null || this.#shell.pid === undefined) return;
    const exited = once(this.#shell, 'exit');
    this.#shell.ref();
    this.#shell.stdin!.end();
    await exited;
  }
}

/**
 * gVisor's runsc: the program meets a kernel of its own, written in Go, instead of the machine's. The same supervisor runs inside, as its root
 * with no right but to change to a user and to kill; memory and time are limited by control groups from outside.
 */
import { copyFileSync, existsSync, mkdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { release } from 'node:os';
import { basename, join } from 'node:path';
import { insideNode } from './inside-node.ts';
import {
  compileSupervisor,
  ENVIRONMENT,
  findProgram,
  findPython,
  HOME,
  insideFolder,
  type Launched,
  type Launcher,
  type LaunchOptions,
  type Preparation,
  PYTHON_FLAGS,
  packageRoot,
  spawnJoined,
  supervisorConfig,
} from './launch.ts';
import type { SandboxLimits } from './types.ts';

/** Memory and processes of the kernel that runs in user space, beside the program's own. */
const KERNEL_BYTES = 128 * 2 ** 20;
const KERNEL_PROCESSES = 192;

export interface RunscOptions {
  /** `ptrace` runs everywhere; `systrap` and `kvm` are faster where the release and the machine have them. */
  platform?: 'ptrace' | 'systrap' | 'kvm';
}

export class RunscLauncher implements Launcher {
  readonly provider = 'runsc';
  readonly isolation = 'gvisor';
  readonly #platform: string;
  #runsc = '';
  #setpriv = '';
  #folder = '';
  #bundle: Record<string, unknown> = {};

  constructor({ platform = 'ptrace' }: RunscOptions = {}) {
    this.#platform = platform;
  }

  prepare(p: Preparation): void {
    this.#runsc = findProgram('runsc');
    this.#setpriv = findProgram('setpriv');
    const python = findPython();
    this.#folder = p.ownFolder;
    const root = join(p.ownFolder, 'rootfs');
    for (const folder of ['proc', 'dev', 'tmp', 'episode', 'usr', 'etc', `.${HOME}`]) mkdirSync(join(root, folder), { recursive: true });
    for (const name of ['lib', 'lib64', 'bin', 'sbin']) {
      if (existsSync(`/usr/${name}`) && !existsSync(join(root, name))) symlinkSync(`usr/${name}`, join(root, name));
    }
    for (const path of [...compileSupervisor(python, p.ownFolder), join(insideFolder(), 'runner.cjs')])
      copyFileSync(path, join(root, HOME, basename(path)));
    writeFileSync(join(root, 'etc/passwd'), 'root:x:0:0:root:/:/bin/false\nnobody:x:65534:65534:nobody:/episode:/bin/sh\n');
    const node = p.javascript ? insideNode(p, { snapshot: false }) : undefined;
    if (node !== undefined) writeFileSync(join(root, HOME, 'node'), '');
    const rights = ['CAP_KILL', 'CAP_SETUID', 'CAP_SETGID', 'CAP_DAC_OVERRIDE'];
    const small = (destination: string, size: number, mode: string) => ({
      destination,
      type: 'tmpfs',
      source: 'tmpfs',
      options: ['nosuid', `size=${size}`, `mode=${mode}`],
    });
    const hidden = ['/usr/local', '/usr/src', packageRoot()].filter((folder) => folder.startsWith('/usr/') && existsSync(folder));
    const config = supervisorConfig(p, { in: 0, out: 1, node: node && [`${HOME}/node`, ...node.arguments], user: 65534 });
    this.#bundle = {
      ociVersion: '1.0.2',
      process: {
        user: { uid: 0, gid: 0 },
        args: [python, ...PYTHON_FLAGS, `${HOME}/supervisor.pyc`, config],
        env: Object.entries(ENVIRONMENT).map(([name, value]) => `${name}=${value}`),
        cwd: '/episode',
        noNewPrivileges: true,
        capabilities: { bounding: rights, effective: rights, permitted: rights, inheritable: [], ambient: [] },
      },
      root: { path: root, readonly: true },
      hostname: 'sandbox',
      mounts: [
        { destination: '/proc', type: 'proc', source: 'proc' },
        small('/dev', 2 ** 20, '0755'),
        small('/dev/shm', 2 ** 20, '1777'),
        { destination: '/usr', type: 'bind', source: '/usr', options: ['ro', 'rbind'] },
        ...hidden.map((folder) => ({ ...small(folder, 4096, '0555'), options: ['ro', 'size=4096', 'mode=0555'] })),
        ...(node === undefined ? [] : [{ destination: `${HOME}/node`, type: 'bind', source: node.path, options: ['ro', 'bind'] }]),
        small('/tmp', p.limits.diskBytes, '1777'),
        small('/episode', p.limits.diskBytes, '0777'),
      ],
      linux: { namespaces: ['pid', 'network', 'ipc', 'uts', 'mount'].map((type) => ({ type })) },
    };
  }

  groupLimits(limits: SandboxLimits): SandboxLimits {
    return { ...limits, memoryBytes: limits.memoryBytes + KERNEL_BYTES, processes: limits.processes + KERNEL_PROCESSES };
  }

  launch(o: LaunchOptions, onEnd: (why: string) => void): Launched {
    const name = o.id.toLowerCase().replace(/[^a-z0-9]/g, 'x');
    const bundle = join(this.#folder, `bundle-${o.id}`);
    mkdirSync(bundle, { mode: 0o700 });
    writeFileSync(join(bundle, 'config.json'), JSON.stringify(this.#bundle));
    const state = join(bundle, 'state');
    const flags = ['--root', state, '--network=none', `--platform=${this.#platform}`, '--ignore-cgroups'];
    const launched = spawnJoined(
      [this.#setpriv, '--pdeathsig', 'KILL', '--', this.#runsc, ...flags, 'run', '--bundle', bundle, name],
      o.joinFiles,
      ['pipe', 'pipe', 'pipe'],
      (child) => ({ input: child.stdout!, output: child.stdin! }),
      onEnd,
    );
    return { ...launched, forget: () => rmSync(bundle, { recursive: true, force: true }) };
  }
}

/** gVisor says it is this kernel; the machine's own is another. */
export const isForeignKernel = (seen: string): boolean => !seen.startsWith(`${release()} `);

// Watches over the command of one job: `job-main <folder of the job>`. A process of its own, so that jobs outlive their head: what there is to
// know is in files of that folder.
import { spawn } from 'node:child_process';
import { openSync } from 'node:fs';
import { join } from 'node:path';
import { os } from '../../kernels/host.ts';
import { readFile, writeFile } from './job-files.ts';

const folder = process.argv[2]!;
const { command, cwd, env } = readFile<{ command: string[]; cwd: string; env: Record<string, string> }>(folder, 'job.json')!;

const log = openSync(join(folder, 'output.log'), 'a', 0o600);
// A group of its own: a signal to it reaches what the command has started.
const child = spawn(command[0]!, command.slice(1), { cwd, env: { ...process.env, ...env }, stdio: ['ignore', log, log], detached: true });
// With its start: if this process is killed, the head still knows whom to end.
child.once('spawn', () => writeFile(folder, 'started.json', { pid: child.pid, start: os.processStartTime(child.pid!) ?? '' }));
child.once('error', (error) => writeFile(folder, 'ended.json', { error: error.message, endedAt: new Date().toISOString() }));
child.once('exit', (code, signal) => writeFile(folder, 'ended.json', { code, signal, endedAt: new Date().toISOString() }));

/**
 * The cache of Hugging Face's tools, shared with them: models--org--name/{refs,blobs,snapshots} under HF_HUB_CACHE, HF_HOME/hub or
 * ~/.cache/huggingface/hub. A blob is named by its content's ETag, a snapshot is a folder of links to blobs, a ref names a commit.
 */
import { createHash } from 'node:crypto';
import { createReadStream, existsSync, mkdirSync, readFileSync, renameSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join, relative } from 'node:path';

/** What Hugging Face's variables say. */
export interface HubEnvironment {
  endpoint: string;
  cache: string;
  token: string | undefined;
  offline: boolean;
}

export function hubEnvironment(env: NodeJS.ProcessEnv): HubEnvironment {
  const home = env.HF_HOME ?? join(env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'huggingface');
  const yes = (value: string | undefined): boolean => value !== undefined && /^(1|on|yes|true)$/i.test(value);
  const tokenFile = env.HF_TOKEN_PATH ?? join(home, 'token');
  const token = env.HF_TOKEN ?? (existsSync(tokenFile) ? readFileSync(tokenFile, 'utf8').trim() : '');
  return {
    endpoint: (env.HF_ENDPOINT ?? 'https://huggingface.co').replace(/\/+$/, ''),
    cache: env.HF_HUB_CACHE ?? join(home, 'hub'),
    token: token === '' ? undefined : token,
    offline: yes(env.HF_HUB_OFFLINE) || yes(env.TRANSFORMERS_OFFLINE),
  };
}

export class RepositoryCache {
  readonly folder: string;

  constructor(cache: string, repository: string) {
    this.folder = join(cache, `models--${repository.replaceAll('/', '--')}`);
  }

  /** The commit that a branch, tag or commit was last known to be. */
  commit(revision: string): string | undefined {
    if (/^[0-9a-f]{40}$/.test(revision)) return revision;
    const ref = join(this.folder, 'refs', revision);
    return existsSync(ref) ? readFileSync(ref, 'utf8').trim() : undefined;
  }

  setCommit(revision: string, commit: string): void {
    if (revision === commit) return;
    const ref = join(this.folder, 'refs', revision);
    mkdirSync(dirname(ref), { recursive: true });
    writeFileSync(`${ref}.${process.pid}`, commit);
    renameSync(`${ref}.${process.pid}`, ref);
  }

  snapshot(commit: string): string {
    return join(this.folder, 'snapshots', commit);
  }

  /** Where a file of a snapshot is, if it is whole. */
  file(commit: string, name: string): string | undefined {
    const path = join(this.snapshot(commit), name);
    return existsSync(path) ? path : undefined;
  }

  blob(etag: string): string {
    mkdirSync(join(this.folder, 'blobs'), { recursive: true });
    return join(this.folder, 'blobs', etag);
  }

  /** Puts a whole blob into a snapshot. */
  link(commit: string, name: string, etag: string): string {
    const path = join(this.snapshot(commit), name);
    mkdirSync(dirname(path), { recursive: true });
    try {
      symlinkSync(relative(dirname(path), this.blob(etag)), path);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
    return path;
  }
}

/** Whether a file is what its ETag says: the SHA-256 of large files, git's SHA-1 of small ones. Other ETags say nothing. */
export async function matches(path: string, etag: string): Promise<boolean> {
  const hash =
    etag.length === 64 ? createHash('sha256') : etag.length === 40 ? createHash('sha1').update(`blob ${statSync(path).size}\0`) : undefined;
  if (hash === undefined || !/^[0-9a-f]+$/.test(etag)) return true;
  for await (const part of createReadStream(path, { highWaterMark: 2 ** 20 })) hash.update(part as Buffer);
  return hash.digest('hex') === etag;
}

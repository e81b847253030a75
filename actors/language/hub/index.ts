/** Models by name: a local folder, or `org/name[@revision]` from the Hugging Face hub through its cache. */
import { existsSync, readFileSync, renameSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { ActorsError } from '../../errors.ts';
import { type HubEnvironment, hubEnvironment, matches, RepositoryCache } from './cache.ts';
import { lock } from './lock.ts';
import { describe, download, fetchJson, type Source, type TransferOptions } from './transfer.ts';

export interface HubProgress {
  file: string;
  /** Bytes of the file that are here, and its size. */
  bytes: number;
  size: number;
  /** The same of all files of the model, as far as they are known. */
  totalBytes: number;
  totalSize: number;
}

export interface HubOptions extends TransferOptions {
  onProgress?: (progress: HubProgress) => void;
  /** Hears why a model comes from the cache although the hub was asked. */
  onWarning?: (message: string) => void;
  /** Default process.env: HF_HOME, HF_HUB_CACHE, HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT, HF_HUB_OFFLINE. */
  env?: NodeJS.ProcessEnv;
}

const REPOSITORY = /^(?!.*(?:--|\.\.))[\w-][\w.-]*\/[\w-][\w.-]*$/;
const WEIGHTS = 'model.safetensors';
const INDEX = 'model.safetensors.index.json';
/** Besides config.json and the weights. */
const OPTIONAL = ['generation_config.json', 'tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json', 'chat_template.jinja'];

/** Whether a text is the name of a model of the hub rather than a path: no such folder here, and of the form `org/name[@revision]`. */
export function isHubName(text: string): boolean {
  return !existsSync(text) && REPOSITORY.test(text.split('@')[0]!) && text.split('@').length <= 2;
}

/**
 * The folder of a model of the hub, downloaded where it is not in the cache yet. A download that was interrupted goes on from where it was; every
 * file is checked against its digest. Without a network, or with HF_HUB_OFFLINE=1, the cache must have it.
 *
 * @example const folder = await downloadModel('Qwen/Qwen2.5-0.5B-Instruct', { onProgress: ({ totalBytes }) => show(totalBytes) })
 */
export async function downloadModel(name: string, o: HubOptions = {}): Promise<string> {
  const environment = hubEnvironment(o.env ?? process.env);
  const [repository, revision = 'main'] = name.split('@') as [string, string?];
  if (!REPOSITORY.test(repository) || !/^[\w.-]+(\/[\w.-]+)*$/.test(revision) || revision.includes('..'))
    throw new ActorsError('SINKFLEX_HUB_MISSING', `${JSON.stringify(name)} is no model of the hub: write org/name or org/name@revision`);
  const cache = new RepositoryCache(environment.cache, repository);
  const known = cache.commit(revision);
  const whole = known !== undefined && isWhole(cache, known) ? cache.snapshot(known) : undefined;
  // A commit never changes, so the hub need not be asked.
  if (whole !== undefined && (environment.offline || known === revision)) return whole;
  if (environment.offline)
    throw new ActorsError(
      'SINKFLEX_HUB_UNREACHABLE',
      `${name} is not (wholly) in ${environment.cache}, and HF_HUB_OFFLINE forbids to download it`,
    );
  const source = (path: string): Source => ({ url: `${environment.endpoint}/${path}`, token: environment.token });
  let listing: { sha: string; files: Set<string> };
  try {
    // With a copy at hand it is not worth waiting long for an answer.
    listing = readListing(
      await fetchJson(
        source(`api/models/${repository}/revision/${encodeURIComponent(revision)}`),
        whole === undefined ? o : { ...o, retries: 1 },
      ),
      name,
    );
  } catch (error) {
    if (whole === undefined || (error as ActorsError).code !== 'SINKFLEX_HUB_UNREACHABLE') throw error;
    o.onWarning?.(`${(error as Error).message}; ${name} is taken from the cache as it was`);
    return whole;
  }
  const { sha, files } = listing;
  if (!files.has('config.json'))
    throw new ActorsError('SINKFLEX_HUB_MISSING', `${name} has no config.json: it is no model that transformers would open`);
  const get = fetcher(environment, cache, repository, sha, o);
  await get(['config.json', ...OPTIONAL.filter((file) => files.has(file)), ...(files.has(INDEX) ? [INDEX] : [])]);
  const weights = files.has(INDEX) ? shards(join(cache.snapshot(sha), INDEX)) : [WEIGHTS];
  const missing = weights.find((file) => !files.has(file));
  if (missing !== undefined)
    throw new ActorsError('SINKFLEX_HUB_MISSING', `${name} has no ${missing}: only weights as safetensors are read`);
  await get(weights);
  cache.setCommit(revision, sha);
  return cache.snapshot(sha);
}

function readListing(json: unknown, name: string): { sha: string; files: Set<string> } {
  const { sha, siblings } = (json ?? {}) as { sha?: unknown; siblings?: unknown };
  if (typeof sha !== 'string' || !/^[0-9a-f]{40}$/.test(sha) || !Array.isArray(siblings))
    throw new ActorsError('SINKFLEX_HUB_UNREACHABLE', `the answer to ${name} is not a hub's: it has no commit and files`);
  return { sha, files: new Set(siblings.map((each: { rfilename?: unknown }) => String(each?.rfilename))) };
}

/** The shards of an index; names that would leave the folder are refused. */
function shards(index: string): string[] {
  const { weight_map: map } = JSON.parse(readFileSync(index, 'utf8')) as { weight_map?: Record<string, unknown> };
  const names = [...new Set(Object.values(map ?? {}))];
  const wrong = names.find((file) => typeof file !== 'string' || !/^[\w-][\w.-]*\.safetensors$/.test(file));
  if (names.length === 0 || wrong !== undefined)
    throw new ActorsError(
      'SINKFLEX_HUB_CORRUPT',
      `${INDEX} names ${names.length === 0 ? 'no shards' : `a shard ${JSON.stringify(wrong)}`}`,
    );
  return names as string[];
}

function isWhole(cache: RepositoryCache, commit: string): boolean {
  if (cache.file(commit, 'config.json') === undefined) return false;
  const index = cache.file(commit, INDEX);
  const weights = index === undefined ? [WEIGHTS] : shards(index);
  return weights.every((file) => cache.file(commit, file) !== undefined);
}

function fetcher(environment: HubEnvironment, cache: RepositoryCache, repository: string, commit: string, o: HubOptions) {
  let [totalBytes, totalSize] = [0, 0];
  return async (names: readonly string[]): Promise<void> => {
    const source = (file: string): Source => ({
      url: `${environment.endpoint}/${repository}/resolve/${commit}/${file}`,
      token: environment.token,
    });
    const wanted = [];
    for (const file of names) {
      if (cache.file(commit, file) !== undefined) continue;
      const info = await describe(source(file), o);
      totalSize += info.size;
      wanted.push({ file, ...info });
    }
    const needed = wanted.reduce((sum, { etag, size }) => sum + (existsSync(cache.blob(etag)) ? 0 : size), 0);
    if (wanted.length > 0) requireSpace(cache.blob('.'), needed);
    for (const { file, etag, size } of wanted) {
      const blob = cache.blob(etag);
      const partial = `${blob}.incomplete`;
      const before = totalBytes;
      const tell = (bytes: number): void => {
        totalBytes = before + bytes;
        o.onProgress?.({ file, bytes, size, totalBytes, totalSize });
      };
      const release = await lock(`${blob}.lock`, o.signal);
      try {
        if (!existsSync(blob)) {
          await download(source(file), partial, size, { ...o, onBytes: tell });
          if (!(await matches(partial, etag))) {
            rmSync(partial);
            throw new ActorsError('SINKFLEX_HUB_CORRUPT', `${repository}/${file} came damaged: its digest is not ${etag}`);
          }
          renameSync(partial, blob);
        }
      } finally {
        release();
      }
      tell(size);
      cache.link(commit, file, etag);
    }
  };
}

function requireSpace(folder: string, bytes: number): void {
  const { bavail, bsize } = statfsSync(folder);
  if (bavail * bsize < bytes)
    throw new ActorsError('SINKFLEX_HUB_SPACE', `${folder} has ${bavail * bsize} bytes free, the model needs ${bytes} more`, {
      details: { folder, bytes, free: bavail * bsize },
    });
}

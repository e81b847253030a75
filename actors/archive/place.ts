/** Where an archive is: s3://bucket/prefix. */
import { ActorsError } from '../errors.ts';

export interface ArchivePlace {
  bucket: string;
  /** Without `/` at either end; may be empty. */
  prefix: string;
}

const PLACE = /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/(.*))?$/;

export const isArchiveUrl = (url: string): boolean => PLACE.test(url);

export function archivePlace(url: string): ArchivePlace {
  const found = PLACE.exec(url);
  if (!found) throw new ActorsError('SINKFLEX_ARCHIVE', `${url} names no place of an archive: write s3://bucket/prefix`);
  return { bucket: found[1]!, prefix: (found[2] ?? '').replace(/^\/+|\/+$/g, '') };
}

/** Key of a name below the prefix. */
export const keyIn = ({ prefix }: ArchivePlace, ...names: string[]): string => [prefix, ...names].filter((name) => name !== '').join('/');

/** Archives in S3-compatible stores. */
export { download, upload } from './files.ts';
export { type ArchivePlace, archivePlace, isArchiveUrl, keyIn } from './place.ts';
export { S3, type S3Options, type StoredObject } from './s3.ts';

// `sinkflex certs`: a certificate authority of a cluster's own, and a certificate for each of its hosts. OpenSSL makes them.
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { Command, InvalidArgumentError } from 'commander';
import { CommandError } from './errors.ts';

const run = promisify(execFile);
const CA_DAYS = 3650;
/** Some systems refuse server certificates that live longer. */
const HOST_DAYS = 397;
const NAME = /^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$/;

function host(text: string, earlier: string[]): string[] {
  if (isIP(text) === 0 && !NAME.test(text)) throw new InvalidArgumentError('a host name or an address');
  return [...earlier, text];
}

async function openssl(folder: string, ...words: string[]): Promise<void> {
  try {
    await run('openssl', words, { cwd: folder, timeout: 60_000 });
  } catch (cause) {
    const { code, stderr } = cause as { code?: unknown; stderr?: string };
    if (code === 'ENOENT')
      throw new CommandError(
        'SINKFLEX_USAGE',
        'certificates are made by the program openssl, which is not installed: install it, or bring certificates of your own',
        {
          cause,
        },
      );
    throw new CommandError('SINKFLEX_USAGE', `openssl ${words[0]} failed: ${stderr?.trim().split('\n').at(-1) ?? String(code)}`, { cause });
  }
}

const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];

/** Makes what is missing in the folder: ca.pem with ca-key.pem, and <first host>.pem with <first host>-key.pem. Answers the paths of the last two. */
export async function makeCertificates(folder: string, hosts: readonly string[]): Promise<{ ca: string; cert: string; key: string }> {
  const to = resolve(folder);
  mkdirSync(to, { recursive: true, mode: 0o700 });
  const path = (name: string): string => join(to, name);
  if (!existsSync(path('ca.pem'))) {
    const authority = ['-addext', 'basicConstraints=critical,CA:TRUE,pathlen:0', '-addext', 'keyUsage=critical,keyCertSign,cRLSign'];
    await openssl(
      to,
      'req',
      '-x509',
      ...newKey,
      '-days',
      String(CA_DAYS),
      '-subj',
      '/CN=SinkFlex cluster',
      '-keyout',
      'ca-key.pem',
      '-out',
      'ca.pem',
      ...authority,
    );
    chmodSync(path('ca-key.pem'), 0o600);
  }
  const name = hosts[0]!.replaceAll(':', '-');
  const work = mkdtempSync(join(tmpdir(), 'sinkflex-certs-'));
  try {
    const names = hosts.map((each) => `${isIP(each) === 0 ? 'DNS' : 'IP'}:${each}`).join(',');
    const extensions = [
      'basicConstraints=critical,CA:FALSE',
      'keyUsage=critical,digitalSignature',
      'extendedKeyUsage=serverAuth',
      `subjectAltName=${names}`,
    ];
    writeFileSync(join(work, 'extensions'), `${extensions.join('\n')}\n`);
    await openssl(
      to,
      'req',
      ...newKey,
      '-subj',
      `/CN=${hosts[0]!.slice(0, 64)}`,
      '-keyout',
      `${name}-key.pem`,
      '-out',
      join(work, 'request'),
    );
    chmodSync(path(`${name}-key.pem`), 0o600);
    const signed = ['-CA', 'ca.pem', '-CAkey', 'ca-key.pem', '-set_serial', `0x7f${randomBytes(15).toString('hex')}`];
    await openssl(
      to,
      'x509',
      '-req',
      '-in',
      join(work, 'request'),
      ...signed,
      '-days',
      String(HOST_DAYS),
      '-extfile',
      join(work, 'extensions'),
      '-out',
      `${name}.pem`,
    );
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  return { ca: path('ca.pem'), cert: path(`${name}.pem`), key: path(`${name}-key.pem`) };
}

export function certsCommand(): Command {
  return new Command('certs')
    .summary("make a cluster's certificates: an authority of its own, and one for a host")
    .description(
      'Makes ca.pem and ca-key.pem in the folder unless they are there, and a certificate with its key for one host. Copy ca.pem to every host, and each ' +
        'its own certificate and key; ca-key.pem stays where it is. Made by openssl.',
    )
    .requiredOption('--host <name>', 'name or address of the host, as others call it (repeatable: all names of one host)', host, [])
    .option('--out <folder>', 'where they go', 'certs')
    .option('--json', 'say where they are as one JSON object')
    .action(async (o: { host: string[]; out: string; json?: boolean }) => {
      if (o.host.length === 0) throw new CommandError('SINKFLEX_USAGE', 'name the host with --host');
      const made = await makeCertificates(o.out, o.host);
      process.stdout.write(
        o.json
          ? `${JSON.stringify(made)}\n`
          : `authority    ${made.ca}\ncertificate  ${made.cert}\nkey          ${made.key}\n  on that host   --tls-cert ${made.cert} --tls-key ${made.key}\n  on all others  --tls-ca ${made.ca}\n`,
      );
    });
}

/**
 * As much of TOML as the benchmark's databases use: tables, arrays of tables, and values that are strings, numbers, booleans, dates or arrays
 * of these. Anything else is refused with its line.
 */
type Table = Record<string, unknown>;

export function parseToml(text: string): Table {
  const root: Table = {};
  let here = root;
  const lines = text.split(/\r?\n/);
  for (let i = 0; i < lines.length; i++) {
    let line = strip(lines[i]!);
    if (line === '') continue;
    const header = /^(\[\[?)\s*([^[\]]+?)\s*\]\]?$/.exec(line);
    if (header) {
      here = enter(root, header[2]!.split('.').map(key), header[1] === '[[');
      continue;
    }
    const pair = /^([A-Za-z0-9_-]+|"[^"]*")\s*=\s*(.*)$/.exec(line);
    if (!pair) throw new SyntaxError(`line ${i + 1}: expected a table or key = value, got ${line}`);
    line = pair[2]!;
    // An array may go on over lines.
    while (line.startsWith('[') && depth(line) > 0 && i + 1 < lines.length) line += ` ${strip(lines[++i]!)}`;
    here[key(pair[1]!)] = value(line, i + 1);
  }
  return root;
}

const key = (text: string): string => text.trim().replace(/^"(.*)"$/, '$1');

/** Without a comment and the blanks around it. */
function strip(line: string): string {
  let inString = false;
  for (let i = 0; i < line.length; i++) {
    if (line[i] === '"' && line[i - 1] !== '\\') inString = !inString;
    if (line[i] === '#' && !inString) return line.slice(0, i).trim();
  }
  return line.trim();
}

function depth(text: string): number {
  const bare = text.replace(/"(?:[^"\\]|\\.)*"/g, '');
  return bare.split('[').length - bare.split(']').length;
}

function enter(root: Table, path: readonly string[], append: boolean): Table {
  let here = root;
  for (const [i, name] of path.entries()) {
    const last = i === path.length - 1;
    if (last && append) {
      here[name] ??= [];
      const items = here[name] as Table[];
      items.push({});
      return items.at(-1)!;
    }
    here[name] ??= {};
    const next = here[name];
    here = (Array.isArray(next) ? next.at(-1) : next) as Table;
  }
  return here;
}

function value(text: string, line: number): unknown {
  const scalar = text.trim();
  if (scalar.startsWith('"') && scalar.endsWith('"')) return JSON.parse(scalar);
  if (scalar === 'true' || scalar === 'false') return scalar === 'true';
  if (/^\d{4}-\d\d-\d\d/.test(scalar)) return scalar;
  if (/^[-+]?[\d_]+(\.\d+)?([eE][-+]?\d+)?$/.test(scalar)) return Number(scalar.replaceAll('_', ''));
  if (scalar.startsWith('[') && scalar.endsWith(']')) return items(scalar.slice(1, -1)).map((item) => value(item, line));
  throw new SyntaxError(`line ${line}: cannot read ${scalar}`);
}

/** The parts between commas that stand in no string or array. */
function items(text: string): string[] {
  const out: string[] = [];
  let at = 0;
  let open = 0;
  let inString = false;
  for (let i = 0; i <= text.length; i++) {
    const c = text[i];
    if (c === '"' && text[i - 1] !== '\\') inString = !inString;
    if (!inString && c === '[') open++;
    if (!inString && c === ']') open--;
    if (i === text.length || (c === ',' && !inString && open === 0)) {
      if (text.slice(at, i).trim() !== '') out.push(text.slice(at, i));
      at = i + 1;
    }
  }
  return out;
}

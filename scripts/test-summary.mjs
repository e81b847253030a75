// Reads the output of test commands that print TAP, one after the other, and ends with `N passed, N failed` (and `, N skipped`), counted
// over all of them. Shows a line a file; details only of what failed, and their ends once more before the last line, for readers who see only
// the end; every skip. Exit code 1 if anything failed, or nothing ran.
//
// Lines that .ci/run adds: `# part: <command>` before each command, `# part ended: <exit code>` after it.
import { createInterface } from 'node:readline';

const detailLimit = 2000; // lines kept of one file
const recapLimit = 60; // lines of all failures together
const recapOfOne = 25;
const total = { passed: 0, failed: 0, skipped: 0 };
let part = 'the tests';
let failedInPart = 0;
let stream; // the TAP stream under way: {ok, notOk, skipped, plan, summary}
let details = [];
const failures = []; // the lines that tell of each

const say = (line) => console.log(line);

/** A failure that no assertion told. */
function tell(line) {
  say(line);
  failures.push([line]);
}

function add(passed, failed, skipped) {
  total.passed += passed;
  total.failed += failed;
  total.skipped += skipped;
  failedInPart += failed;
}

/** A stream that breaks off, or whose plan does not fit, counts as one failure more. */
function endStream() {
  if (!stream) return;
  const { ok, notOk, skipped, plan, summary } = stream;
  if (summary) add(summary.pass, summary.fail, summary.skip + summary.todo);
  else add(ok, notOk, skipped);
  const ran = ok + notOk + skipped;
  if (plan === undefined || (plan !== ran && !stream.skipAll)) {
    for (const detail of details.slice(-60)) say(detail);
    tell(`not ok - ${part}: the output broke off after ${ran} of ${plan ?? 'an unknown number of'} results`);
    add(0, 1, 0);
  }
  stream = undefined;
  details = [];
}

function result(line, good, directive) {
  if (directive) stream.skipped++;
  else if (good) stream.ok++;
  else stream.notOk++;
  if (!good && !directive) {
    for (const detail of details) say(detail);
    failures.push([...innermost(details), line]);
  }
  details = [];
  say(line);
}

/** Of a failed file: each failed assertion with what is said of it, but not the `not ok` of the tests around it. */
function innermost(lines) {
  const kept = [];
  for (const [i, line] of lines.entries()) {
    if (!/^\s+not ok/.test(line)) continue;
    const indent = line.search(/\S/);
    const end = lines.findIndex((later, j) => j > i && /^\s*\.\.\.$/.test(later));
    const block = lines.slice(i, lines[i + 1]?.trim() === '---' && end > 0 ? end : i + 1);
    // A test that failed because of what is in it has a plan right before it.
    if (new RegExp(`^ {${indent + 4}}(1\\.\\.|# )`).test(lines[i - 1] ?? '')) continue;
    kept.push(...block.slice(0, recapOfOne));
  }
  return kept;
}

function rootLine(line) {
  if (/^TAP version \d+/.test(line)) {
    endStream();
    stream = { ok: 0, notOk: 0, skipped: 0 };
    return;
  }
  const started = line.match(/^# part: (.*)/);
  if (started) {
    part = started[1];
    failedInPart = 0;
    say(`\n${line}`);
    return;
  }
  const ended = line.match(/^# part ended: (\d+)/);
  if (ended) {
    endStream();
    if (ended[1] !== '0' && failedInPart === 0) {
      tell(`not ok - ${part} ended with exit code ${ended[1]}`);
      add(0, 1, 0);
    }
    return;
  }
  if (!stream) return say(line); // npm, tsc
  const outcome = line.match(/^(not )?ok\b(?:.*?#\s*(SKIP|TODO)\b)?/i);
  const plan = line.match(/^1\.\.(\d+)(\s*#\s*SKIP.*)?/i);
  const counts = line.match(/^# \{ total: (\d+)(.*)\}/);
  if (outcome) result(line, !outcome[1], outcome[2]);
  else if (plan) {
    stream.plan = Number(plan[1]);
    if (plan[1] === '0') {
      stream.skipAll = true;
      stream.skipped++;
      say(`# SKIP ${part}${line.slice(4)}`);
    }
  } else if (counts) {
    const of = (name) => Number(counts[2].match(new RegExp(`${name}: (\\d+)`))?.[1] ?? 0);
    stream.summary = { pass: of('pass'), fail: of('fail'), skip: of('skip'), todo: of('todo') };
  } else if (/^Bail out!/.test(line)) {
    tell(line);
    add(0, 1, 0);
  } else if (!/^(# (Subtest|time=|No coverage)|\s*$)/.test(line)) say(line);
}

for await (const line of createInterface({ input: process.stdin })) {
  if (!stream || !/^\s/.test(line)) {
    rootLine(line);
    continue;
  }
  if (/^ {4}/.test(line) && /#\s*(SKIP|TODO)\b/i.test(line)) say(line.trimStart().replace(/^/, '    '));
  if (details.length < detailLimit) details.push(line);
}
endStream();
if (total.passed + total.failed === 0) {
  say('not ok - no test ran');
  total.failed = 1;
}
if (failures.length > 0) say('\n# what failed');
for (const line of failures.flat().slice(0, recapLimit)) say(line);
say(`\n${total.passed} passed, ${total.failed} failed${total.skipped ? `, ${total.skipped} skipped` : ''}`);
process.exitCode = total.failed ? 1 : 0;

// One look at what JavaScript a loop is executing, through the inspector protocol: works on a loop that never turns, since V8 itself takes
// the question in between two operations.
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';

export interface StackFrame {
  function: string;
  /** URL of the module; `node:...` for node's own. */
  url: string;
  /** From 1. */
  line: number;
  column: number;
}

export interface StackSample {
  /** `idle`: no code of anybody's ran. `silent`: no answer, as from a long call of native code or a stopped process. */
  state: 'running' | 'idle' | 'silent';
  /** Innermost first. */
  frames: StackFrame[];
}

/** The way to one inspected thread. */
export interface Inspected {
  post(method: string): void;
  onMessage(listener: (message: InspectorMessage) => void): void;
}

export interface InspectorMessage {
  method?: string;
  params?: unknown;
}

/** How long a loop gets to be caught at something. One that turns is caught at a timer of the runtime within 100 ms. */
export const STACK_WAIT_MS = 500;

/** Where worker processes listen for those who want their stack. A short name: paths of sockets are. */
export function stackFolder(folder: string): string {
  return join(folder, 's');
}

const MAX_FRAMES = 64;
/** The timer of the runtime itself (loop-lag.ts, or the file that it was joined into): whoever is caught there was idle. */
const own = ({ function: name, url }: StackFrame): boolean =>
  name === 'turnOfLoop' && /\/(?:runtime\/observe\/loop-lag\.[jt]s|dist\/joined\/worker\.js)$/.test(url);

/** Here a method was called. */
const called = /\/(?:runtime\/(?:worker|wire)\/[^/]+|dist\/joined\/(?:worker|stack)\.js)$/;

interface CallFrame {
  functionName: string;
  location: { scriptId: string; lineNumber: number; columnNumber?: number };
}

export function sampleStack(target: Inspected, waitMs: number): Promise<StackSample> {
  return new Promise((resolve) => {
    let answered = false;
    const urls = new Map<string, string>();
    const finish = (sample: StackSample): void => {
      clearTimeout(late);
      target.post('Debugger.disable'); // lets it go on
      resolve(sample);
    };
    const late = setTimeout(() => finish({ state: answered ? 'idle' : 'silent', frames: [] }), waitMs);
    target.onMessage(({ method, params }) => {
      answered = true;
      if (method === 'Debugger.paused') finish(sampleOf((params as { callFrames: CallFrame[] }).callFrames, urls));
      else if (method === 'Debugger.scriptParsed') {
        const { scriptId, url } = params as { scriptId: string; url: string };
        urls.set(scriptId, url);
      }
    });
    target.post('Debugger.enable');
    target.post('Debugger.pause');
  });
}

function sampleOf(callFrames: CallFrame[], urls: Map<string, string>): StackSample {
  const frames = callFrames.slice(0, MAX_FRAMES).map(({ functionName, location }) => ({
    function: functionName === '' ? '<anonymous>' : functionName,
    url: urls.get(location.scriptId) ?? '',
    line: location.lineNumber + 1,
    column: (location.columnNumber ?? 0) + 1,
  }));
  const theirs = frames.filter(({ url }) => !url.startsWith('node:'));
  const idle = theirs.length === 0 || theirs.every(own);
  return idle ? { state: 'idle', frames: [] } : { state: 'running', frames };
}

/** As in an error's stack, without what the runtime did to get there; names that a program made up cannot steer the terminal. */
export function stackText({ frames }: StackSample): string {
  const end = frames.findIndex(({ url }) => called.test(url));
  return frames
    .slice(0, end > 0 ? end : frames.length)
    .map(({ function: name, url, line, column }) => stripVTControlCharacters(`    at ${name} (${url}:${line}:${column})`))
    .join('\n');
}

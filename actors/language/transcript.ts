/** Episodes as people read them: a line a turn, and the score with its factors at the end. */
import type { Message } from '../environment/types.ts';
import type { Chat } from './chat.ts';

export interface TranscriptNotes {
  title?: string;
  reward?: number;
  rewardParts?: Record<string, number>;
  /** Further lines, such as how the episode ended. */
  notes?: readonly string[];
}

/** From messages, or from the ids of an episode (then its special tokens show). */
export function renderTranscript(source: readonly Message[] | { chat: Chat; ids: ArrayLike<number> }, o: TranscriptNotes = {}): string {
  const lines = 'chat' in source ? linesOfIds(source.chat, source.ids) : linesOfMessages(source);
  if (o.title !== undefined) lines.unshift(o.title, '');
  const score = scoreLine(o);
  if (score !== undefined || o.notes?.length) lines.push('');
  if (score !== undefined) lines.push(score);
  lines.push(...(o.notes ?? []));
  return `${lines.join('\n')}\n`;
}

function linesOfMessages(messages: readonly Message[]): string[] {
  return messages.map((m) => `${m.role.padEnd(10)} ${m.content.replaceAll('\n', `\n${' '.repeat(11)}`)}`);
}

/** A new line at each special token but the one that ends a turn. */
function linesOfIds(chat: Chat, ids: ArrayLike<number>): string[] {
  const lines: string[] = [];
  let run: number[] = [];
  const flush = () => {
    if (run.length > 0) lines.push(chat.tokenizer.decode(run));
    run = [];
  };
  for (let i = 0; i < ids.length; i++) {
    const id = ids[i]!;
    if (id !== chat.endOfTurn && chat.tokenizer.isSpecial(id)) flush();
    run.push(id);
  }
  flush();
  return lines;
}

function scoreLine(o: TranscriptNotes): string | undefined {
  if (o.reward === undefined) return undefined;
  const parts = Object.entries(o.rewardParts ?? {}).map(([name, value]) => `${name} ${round(value)}`);
  return `score ${round(o.reward)}${parts.length > 0 ? `  (${parts.join(', ')})` : ''}`;
}

const round = (value: number): string => String(Math.round(value * 1000) / 1000);

// report.html: one file that opens from disk without a network. The chart library (uPlot), the data and the script stand in it.
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { client } from './client.ts';
import type { RunReport } from './collect.ts';

const STYLE = `
body { font: 15px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1280px; padding: 24px; color: #222; background: #fafafa; }
h1 { font-size: 24px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 32px 0 8px; } h3 { font-size: 15px; margin: 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; } dt { color: #666; } dd { margin: 0; overflow-wrap: anywhere; }
.grid { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 560px), 1fr)); gap: 16px; }
.card { background: #fff; border: 1px solid #ddd; border-radius: 6px; padding: 12px; min-width: 0; }
.hint { color: #666; margin: 0 0 6px; font-size: 13px; }
.turn { font: 13px/1.6 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; padding: 2px 10px; border-left: 3px solid #bbb; margin: 4px 0; color: #555; }
.policy { border-color: #0b6e99; color: #111; }
select { font: inherit; max-width: 100%; }
`;

export function reportPage(report: RunReport): string {
  const library = dirname(createRequire(import.meta.url).resolve('uplot/package.json'));
  const asset = (name: string) => readFileSync(join(library, 'dist', name), 'utf8');
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${escapeHtml(report.title)}</title>
<style>${asset('uPlot.min.css')}${STYLE}</style>
</head>
<body>
<h1>${escapeHtml(report.title)}</h1>
<dl>${report.facts.map(([name, value]) => `<dt>${escapeHtml(name)}</dt><dd>${escapeHtml(value)}</dd>`).join('')}</dl>
<div id="charts" class="grid"></div>
<h2>Where the time went</h2>
<div id="time"></div>
<h2>Distributions</h2>
<p class="hint">Over the recorded trajectories (trainer.max_trajectories_per_step of each step).</p>
<div id="histograms" class="grid"></div>
<h2>Episodes</h2>
<p class="hint">The policy's tokens stand behind a blue bar, the redder the less likely they were; point at one for its log-probability.</p>
<p><select id="episodes"></select></p>
<div id="episode" class="card"></div>
<script>${inScript(asset('uPlot.iife.min.js'))}</script>
<script>const report = ${JSON.stringify(report).replaceAll('<', '\\u003c')};
(${inScript(client.toString())})(report, document, uPlot);</script>
</body>
</html>
`;
}

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const escapeHtml = (text: string): string => text.replace(/[&<>"]/g, (c) => ENTITIES[c]!);

/** Code must not end its script element, nor open a comment in it. In the data every `<` is written as its code. */
const inScript = (code: string): string => code.replaceAll('</', '<\\/').replaceAll('<!--', '<\\!--');

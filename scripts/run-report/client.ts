// The script of report.html. It runs in a browser: its source text is written into the page, so it may use nothing from outside itself
// but the chart library, `report` and the document.
import type { ChartData, HistogramData, RunReport } from './collect.ts';
import type { EpisodeData } from './episodes.ts';

/** As much of a browser as is used; the project is not compiled against the DOM. */
interface Element {
  append(...nodes: (Element | string)[]): void;
  replaceChildren(...nodes: (Element | string)[]): void;
  addEventListener(name: string, listener: () => void): void;
  textContent: string;
  className: string;
  title: string;
  value: string;
  clientWidth: number;
  style: { background: string };
}
interface Page {
  getElementById(id: string): Element;
  createElement(name: string): Element;
}
type UPlot = new (options: unknown, data: unknown, target: Element) => unknown;

export function client(report: RunReport, document: Page, uPlot: UPlot & { paths: { bars(o: unknown): unknown } }): void {
  const colours = ['#0b6e99', '#c1440e', '#3f7d20', '#7b4fa3', '#a6761d', '#1b9e77', '#d6336c'];
  const element = (name: string, text = '', className = ''): Element => {
    const e = document.createElement(name);
    e.textContent = text;
    e.className = className;
    return e;
  };
  const card = (into: string, title: string, hint?: string): Element => {
    const box = element('section', '', 'card');
    box.append(element('h3', title));
    if (hint) box.append(element('p', hint, 'hint'));
    document.getElementById(into).append(box);
    return box;
  };
  const axes = (x: string) => [{ label: x, size: 44, labelSize: 18 }, { size: 64 }];
  /** A little room above and below; a flat line keeps its own scale. */
  const range = (_plot: unknown, low: number | null, high: number | null): [number, number] => {
    const room = ((high ?? 1) - (low ?? 0)) * 0.05 || Math.abs(high ?? 0) * 0.1 || 1;
    return [(low ?? 0) >= 0 ? Math.max(0, (low ?? 0) - room) : low! - room, (high ?? 0) + room];
  };
  const draw = (box: Element, options: Record<string, unknown>, data: unknown): void => {
    new uPlot(
      { width: Math.max(320, box.clientWidth - 24), height: 240, scales: { x: { time: false }, y: { range } }, ...options },
      data,
      box,
    );
  };

  const chart = (c: ChartData): void => {
    const box = card('charts', c.title, c.hint);
    const band = [c.series.findIndex((s) => s.kind === 'high') + 1, c.series.findIndex((s) => s.kind === 'low') + 1];
    draw(
      box,
      {
        axes: axes(c.xLabel),
        series: [
          { label: c.xLabel },
          ...c.series.map((s, i) => {
            const edge = s.kind === 'low' || s.kind === 'high';
            const stroke = edge ? 'rgba(193,68,14,0.25)' : colours[i % colours.length];
            return { label: s.label, stroke, width: edge ? 1 : 1.75, spanGaps: true, points: { show: s.kind === 'points', size: 7 } };
          }),
        ],
        bands: band[0]! > 0 ? [{ series: band, fill: 'rgba(193,68,14,0.12)' }] : [],
      },
      [c.x, ...c.series.map((s) => s.values)],
    );
  };

  const histogram = (h: HistogramData): void => {
    const box = card('histograms', h.title);
    const bars = uPlot.paths.bars({ size: [0.9, 60], align: 1 });
    const series = [
      { label: h.unit || 'from' },
      { label: 'episodes', fill: '#0b6e9999', stroke: '#0b6e99', paths: bars, points: { show: false } },
    ];
    draw(box, { axes: axes(h.unit), series }, [h.edges, h.counts]);
  };

  const time = (): void => {
    if (report.time.length === 0) return;
    const box = card('time', 'Seconds of each step', 'waiting near zero: the trainer is the slower side; much of it: rollouts are');
    const names = ['waiting for rollouts', 'log-probabilities again', 'update', 'the rest'];
    // Stacked: each area reaches from the sum before it to its own.
    const stacked = names.map((_, i) => report.time.map((row) => row.slice(1, i + 2).reduce((a, b) => a + b, 0)));
    const order = [3, 2, 1, 0];
    draw(
      box,
      {
        axes: axes('step'),
        series: [{ label: 'step' }, ...order.map((i) => ({ label: names[i], stroke: colours[i], fill: `${colours[i]}cc`, value: own(i) }))],
      },
      [report.time.map((row) => row[0]), ...order.map((i) => stacked[i])],
    );
    function own(i: number) {
      return (_plot: unknown, _sum: unknown, _series: unknown, at: number | null) =>
        at === null ? '' : `${report.time[at]![i + 1]!.toFixed(3)} s`;
    }
  };

  const number = (v: number | null): string => (v === null ? '-' : String(Number(v.toFixed(3))));
  /** Surprising tokens stand out: white at probability 1, red at 1 in 100 and below. */
  const shade = (logprob: number): string => `rgba(193,68,14,${Math.min(1, -logprob / 4.6).toFixed(2)})`;
  const show = (e: EpisodeData): void => {
    const parts = Object.entries(e.parts).map(([name, v]) => `${name} ${number(v)}`);
    for (const [name, v] of Object.entries(e.diagnostics)) if (v !== 0) parts.push(`${name.replaceAll('_', ' ')} ${number(v)}`);
    const about = element('p', '', 'hint');
    about.textContent =
      `${e.phase}, step ${e.step}, task ${e.task}, sample ${e.sample}: reward ${number(e.reward)}${parts.length > 0 ? ` (${parts.join(', ')})` : ''}, ` +
      `advantage ${number(e.advantage)}, ended by ${e.stop} after ${e.turns} turns and ${e.toolCalls} tool calls` +
      `${e.staleness === null ? '' : `, ${e.staleness} versions old when trained`}`;
    const turns = e.spans.map((s) => {
      const line = element('div', '', s.policy ? 'turn policy' : 'turn');
      if (!s.policy) {
        line.append(s.text);
        return line;
      }
      for (const [text, logprob] of s.pieces) {
        const token = element('span', text);
        token.title = `log-probability ${logprob}, probability ${Math.exp(logprob).toPrecision(3)}`;
        token.style.background = shade(logprob);
        line.append(token);
      }
      return line;
    });
    document.getElementById('episode').replaceChildren(about, ...turns);
  };
  const select = document.getElementById('episodes');
  report.episodes.forEach((e, i) => {
    const option = element('option', `${e.phase} step ${e.step}: task ${e.task} sample ${e.sample}, reward ${number(e.reward)}`);
    option.value = String(i);
    select.append(option);
  });
  select.addEventListener('change', () => show(report.episodes[Number(select.value)]!));
  if (report.episodes.length > 0) show(report.episodes[0]!);
  for (const c of report.charts) chart(c);
  for (const h of report.histograms) histogram(h);
  time();
}

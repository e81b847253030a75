// The learning curve as an SVG file: validation scores with their 95% intervals, the rolling training score, and reference lines.
import type { Interval } from './statistics.ts';

export interface CurveSeries {
  /** In the legend; '' leaves it out. */
  label: string;
  color: string;
  /** A line through (x, y). */
  line?: readonly { x: number; y: number }[];
  /** Dots with whiskers; joined by a line. */
  points?: readonly { x: number; score: Interval }[];
  /** Opacity of the line, 1 if left out. */
  faint?: boolean;
}

export interface Curve {
  title: string;
  subtitle?: string;
  xLabel: string;
  yLabel: string;
  series: readonly CurveSeries[];
  /** Horizontal dashed lines: what the scores are measured against. */
  references?: readonly { label: string; y: number }[];
  yMax?: number;
}

/** Colours that stay apart on white and for colour-blind readers. */
export const PALETTE = ['#0b6e99', '#c1440e', '#3f7d20', '#7b4fa3', '#a6761d', '#1b9e77', '#d6336c', '#495057'] as const;

const WIDTH = 860;
const HEIGHT = 480;
/** White around letters that may stand on lines. */
const HALO = 'paint-order="stroke" stroke="#fff" stroke-width="4"';
const BOX = { left: 68, right: WIDTH - 24, top: 64, bottom: HEIGHT - 92 };

export function drawCurve(curve: Curve): string {
  const xs = curve.series.flatMap((s) => [...(s.line ?? []), ...(s.points ?? [])].map((p) => p.x)).filter(Number.isFinite);
  const xMax = Math.max(1, ...xs);
  const yMax = curve.yMax ?? 1;
  const px = (x: number) => round(BOX.left + (x / xMax) * (BOX.right - BOX.left));
  const py = (y: number) => round(BOX.bottom - (Math.min(Math.max(y, 0), yMax) / yMax) * (BOX.bottom - BOX.top));
  const out: string[] = [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${HEIGHT}" width="${WIDTH}" height="${HEIGHT}" role="img" aria-label="${escapeXml(curve.title)}" font-family="system-ui, -apple-system, 'Segoe UI', sans-serif" font-size="13" fill="#222">`,
    `<title>${escapeXml(curve.title)}</title>`,
    `<rect width="${WIDTH}" height="${HEIGHT}" fill="#fff"/>`,
    text(BOX.left, 26, curve.title, 'font-size="17" font-weight="600"'),
    ...(curve.subtitle ? [text(BOX.left, 46, curve.subtitle, 'fill="#555"')] : []),
  ];
  for (const y of ticks(yMax, 5)) {
    out.push(
      `<line x1="${BOX.left}" x2="${BOX.right}" y1="${py(y)}" y2="${py(y)}" stroke="#e5e5e5"/>`,
      text(BOX.left - 8, py(y) + 4, label(y), 'text-anchor="end" fill="#555"'),
    );
  }
  for (const x of ticks(xMax, 8)) out.push(text(px(x), BOX.bottom + 18, label(x), 'text-anchor="middle" fill="#555"'));
  out.push(
    `<path d="M${BOX.left} ${BOX.top}V${BOX.bottom}H${BOX.right}" fill="none" stroke="#888"/>`,
    text((BOX.left + BOX.right) / 2, BOX.bottom + 40, curve.xLabel, 'text-anchor="middle"'),
    text(0, 0, curve.yLabel, `text-anchor="middle" transform="translate(20 ${(BOX.top + BOX.bottom) / 2}) rotate(-90)"`),
  );
  for (const r of curve.references ?? []) {
    out.push(
      `<line x1="${BOX.left}" x2="${BOX.right}" y1="${py(r.y)}" y2="${py(r.y)}" stroke="#999" stroke-dasharray="5 4"/>`,
      // A curve that learns leaves the upper left and the lower right free.
      r.y > yMax / 2
        ? text(BOX.left + 48, py(r.y) + (r.y > 0.95 * yMax ? 14 : -5), r.label, 'fill="#666" font-size="12"')
        : text(BOX.right - 4, py(r.y) - 5, r.label, 'text-anchor="end" fill="#666" font-size="12"'),
    );
  }
  for (const s of curve.series) out.push(...drawSeries(s, px, py));
  out.push(...legend(curve.series));
  return `${out.join('\n')}\n</svg>\n`;
}

function drawSeries(s: CurveSeries, px: (x: number) => number, py: (y: number) => number): string[] {
  const out: string[] = [];
  const line = (s.line ?? []).filter((p) => Number.isFinite(p.y));
  if (line.length > 0) {
    out.push(
      `<polyline points="${line.map((p) => `${px(p.x)},${py(p.y)}`).join(' ')}" fill="none" stroke="${s.color}" stroke-width="1.5"${s.faint ? ' opacity="0.45"' : ''}/>`,
    );
  }
  const points = (s.points ?? []).filter((p) => Number.isFinite(p.score.mean));
  if (points.length > 1) {
    out.push(
      `<polyline points="${points.map((p) => `${px(p.x)},${py(p.score.mean)}`).join(' ')}" fill="none" stroke="${s.color}" stroke-width="2"/>`,
    );
  }
  for (const { x, score } of points) {
    const [cx, low, high] = [px(x), py(score.low), py(score.high)];
    out.push(
      `<path d="M${cx} ${low}V${high}M${cx - 4} ${low}h8M${cx - 4} ${high}h8" stroke="${s.color}" fill="none"/>`,
      `<circle cx="${cx}" cy="${py(score.mean)}" r="4" fill="${s.color}"><title>${label(x)}: ${score.mean.toFixed(3)} [${score.low.toFixed(3)}, ${score.high.toFixed(3)}], ${score.n} tasks</title></circle>`,
    );
  }
  const [first, last] = [points[0], points.at(-1)];
  // Below its point, where a rising curve leaves room; above it where the axis would be in the way.
  const besides = (y: number) => (y + 18 > BOX.bottom - 4 ? y - 10 : y + 18);
  if (!s.faint && first && last && first !== last) {
    out.push(
      text(px(first.x) + 9, besides(py(first.score.mean)), first.score.mean.toFixed(2), `fill="${s.color}" font-weight="600" ${HALO}`),
      text(
        px(last.x) - 9,
        besides(py(last.score.mean)),
        last.score.mean.toFixed(2),
        `text-anchor="end" fill="${s.color}" font-weight="600" ${HALO}`,
      ),
    );
  }
  return out;
}

function legend(series: readonly CurveSeries[]): string[] {
  const out: string[] = [];
  let x: number = BOX.left;
  for (const s of series.filter((each) => each.label !== '')) {
    const y = HEIGHT - 22;
    out.push(
      `<line x1="${x}" x2="${x + 22}" y1="${y}" y2="${y}" stroke="${s.color}" stroke-width="2"${s.faint ? ' opacity="0.45"' : ''}/>`,
    );
    if (s.points) out.push(`<circle cx="${x + 11}" cy="${y}" r="4" fill="${s.color}"/>`);
    out.push(text(x + 28, y + 4, s.label, ''));
    // Width of the words is estimated; exact metrics need a font.
    x += 46 + s.label.length * 7;
  }
  return out;
}

/** Round numbers from 0 to at most `max`, about `count` of them. */
function ticks(max: number, count: number): number[] {
  const rough = max / count;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * unit).find((s) => s >= rough - 1e-12)!;
  return Array.from({ length: Math.floor(max / step + 1e-9) + 1 }, (_, i) => i * step);
}

const label = (value: number): string => String(Number(value.toFixed(3)));
const round = (value: number): number => Math.round(value * 10) / 10;
const text = (x: number, y: number, content: string, attributes: string): string =>
  `<text x="${round(x)}" y="${round(y)}" ${attributes}>${escapeXml(content)}</text>`;
const escapeXml = (content: string): string =>
  content.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');

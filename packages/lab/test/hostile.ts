import type { Chart, Report } from '../src/index.js';

/** Texts that break out of HTML, of attributes, of SVG, of expressions, or of the line that they stand in. */
export const HOSTILE_TEXTS = [
  '<script>document.title="broken"</script>',
  '"><img src=x onerror="document.title=\'broken\'">',
  "' onmouseover='document.title=1",
  '</style><style>body{display:none}',
  '</svg><script>1</script>',
  '&lt;b&gt;',
  'datum.value',
  '{"signal": "width"}',
  '\u0000\u0007\u001b[31m',
  '\ud800 lone',
  '\u202ereversed',
  'x'.repeat(500),
  '',
  'https://example.invalid/a.png',
];

/** A report with every kind of chart whose texts are all of these. */
export function reportOf(texts: readonly string[]): Report {
  const axis = { title: texts[0]!, format: 'plain' } as const;
  const charts: Chart[] = [
    {
      kind: 'intervals',
      title: texts[0]!,
      axis,
      rows: texts.map((label, i) => ({ label, value: i, low: i - 1, high: i + 1 })),
    },
    { kind: 'pairs', title: texts[0]!, axis, rows: texts.map((label, i) => ({ label, paper: i, ours: i + 1 })) },
    {
      kind: 'lines',
      title: texts[0]!,
      x: axis,
      y: axis,
      series: texts.map((name, i) => ({ name, points: [0, 1].map((x) => ({ x, y: x * i })) })),
    },
  ];
  return {
    title: texts[0]!,
    finding: texts[0]!,
    facts: texts.map((text) => ({ name: text, value: text })),
    sections: charts.map((chart) => ({
      heading: texts[0]!,
      text: texts,
      figures: [
        {
          charts: [chart],
          table: { caption: texts[0]!, columns: ['', ...texts], rows: texts.map((text) => [text, ...texts]) },
        },
      ],
      notes: texts,
    })),
  };
}

// The picture of how it works, once for light pages and once for dark ones.

const LIGHT = {
  text: '#1f2328',
  soft: '#59636e',
  line: '#818b98',
  fill: '#f6f8fa',
  reused: '#2da44e',
  fresh: '#d4a72c',
};
const DARK = {
  text: '#e6edf3',
  soft: '#9198a1',
  line: '#656c76',
  fill: '#212830',
  reused: '#3fb950',
  fresh: '#bb8009',
};

/** Both pictures, by their path below `docs/`. */
export function drawings() {
  return { 'public/how-it-works-light.svg': draw(LIGHT), 'public/how-it-works-dark.svg': draw(DARK) };
}

/** Two requests with the same documents in another order, without Warmpath and with it. */
function draw(colours) {
  const { text, soft } = colours;
  const rows = [
    {
      y: 64,
      label: 'Request 1',
      parts: [
        ['system', 0],
        ['A', 0],
        ['B', 0],
        ['C', 0],
        ['question', 0],
      ],
    },
    {
      y: 128,
      label: 'Request 2, retrieval order',
      parts: [
        ['system', 1],
        ['C', 0],
        ['A', 0],
        ['B', 0],
        ['question', 0],
      ],
    },
    {
      y: 192,
      label: 'Request 2, arranged',
      parts: [
        ['system', 1],
        ['A', 1],
        ['B', 1],
        ['C', 1],
        ['hint', 0],
        ['question', 0],
      ],
    },
  ];
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 290" font-family="system-ui, sans-serif" font-size="14" role="img" aria-labelledby="title">
<title id="title">The engine reuses an identical beginning only: the same documents in another order are computed again, in the same order they are reused</title>
<text x="24" y="34" fill="${text}" font-size="16" font-weight="600">The engine reuses only an identical beginning of the prompt</text>
${rows.map((row) => drawRow(row, colours)).join('\n')}
<rect x="24" y="252" width="14" height="14" rx="3" fill="${colours.reused}"/><text x="46" y="264" fill="${soft}">in the engine's cache: not computed again</text>
<rect x="390" y="252" width="14" height="14" rx="3" fill="${colours.fresh}"/><text x="412" y="264" fill="${soft}">computed for this request</text>
</svg>
`;
}

function drawRow({ y, label, parts }, { text, line, reused, fresh }) {
  let x = 230;
  const boxes = parts.map(([name, isReused]) => {
    const width = name.length > 1 ? 92 : 60;
    const left = x;
    x += width + 6;
    return `<rect x="${left}" y="${y}" width="${width}" height="40" rx="6" fill="${isReused ? reused : fresh}" fill-opacity="0.28" stroke="${isReused ? reused : fresh}"/><text x="${left + width / 2}" y="${y + 25}" text-anchor="middle" fill="${text}">${name}</text>`;
  });
  return `<text x="24" y="${y + 25}" fill="${text}">${label}</text><line x1="222" y1="${y}" x2="222" y2="${y + 40}" stroke="${line}"/>${boxes.join('')}`;
}

import { printableJson } from '@warmpath/core/internal';
import type { ExplainedBlock, ExplainedBreak, Explanation } from '@warmpath/gateway';
import type { Style } from '../terminal.js';

/** Documents named in one line; the rest shows as a number. */
const NAMES_SHOWN = 8;

const LABELS = {
  none: undefined,
  kept: 'labels move with their documents',
  mapped: 'documents have labels of their own, and the answer has those of the prompt',
} as const;
const DECISIONS = {
  arranged: undefined,
  replayed: 'sent before, and sent the same again',
  fixed: 'stay: the prompt speaks of their order, or refers to their places',
  history: 'stay: no longer new, and not seen before',
} as const;

const REFERRED = [
  ['given before', false],
  ['given in part', true],
] as const;

/** An explanation in lines for a person. */
export function describeExplanation(explanation: Explanation, style: Style): readonly string[] {
  const { api, model, promptTokens, givenDocuments, blocks, shiftPrice, advice, prefix } = explanation;
  const lines = [
    `${style.bold(`${api} request`)}${model === '' ? '' : ` to ${model}`}, ${tokens(promptTokens)} (estimated)`,
    '',
  ];
  if (givenDocuments > 0)
    lines.push(`${givenDocuments} documents in the field \`documents\`; the prompt is not searched for others`);
  else if (blocks.length === 0) lines.push('no documents recognised');
  for (const block of blocks) lines.push(...describeBlock(block, shiftPrice, style));
  if (advice !== null) lines.push(style.yellow(advice));
  if (prefix !== null) lines.push('', ...describePrefix(explanation, style));
  return lines;
}

function describeBlock(block: ExplainedBlock, shiftPrice: number, style: Style): readonly string[] {
  const { place, format, marked, documents, order, decided, labels, references } = block;
  const sum = documents.reduce((all, document) => all + document.tokens, 0);
  const moved = order.filter((rank, at) => rank !== at).length;
  const lines = [
    `${style.bold(place)}  ${documents.length} ${documents.length === 1 ? 'document' : 'documents'} (${format}${marked ? ', marked' : ''}), ${tokens(sum)}`,
    `  as they came    ${names(documents.map(({ id }) => id))}`,
  ];
  if (moved > 0) lines.push(`  would stand     ${names(order.map((rank) => documents[rank]!.id))}`);
  if (moved > 0 && shiftPrice > 0) {
    const places = order.reduce((all, rank, at) => all + Math.abs(rank - at), 0);
    lines.push(`  moved           ${places} places at ${tokens(shiftPrice)} each: ${tokens(places * shiftPrice)}`);
  }
  for (const [title, isPart] of REFERRED) {
    const given = references.filter(({ partly }) => partly === isPart);
    if (given.length === 0) continue;
    const saved = given.reduce((all, { savedTokens }) => all + savedTokens, 0);
    const repeated = names(given.map(({ rank }) => documents[rank]!.id));
    const by = isPart ? '' : `, by hints such as ${given[0]!.hint}`;
    lines.push(`  ${title.padEnd(16)}${repeated}: ${tokens(saved)} less${by}`);
  }
  const note =
    format === 'result'
      ? undefined
      : (DECISIONS[decided] ?? (moved === 0 ? nothingToGain(shiftPrice) : LABELS[labels]));
  if (note !== undefined) lines.push(`  ${style.dim(note)}`);
  return lines;
}

function nothingToGain(shiftPrice: number): string {
  if (shiftPrice === 0) return 'stay: nothing to gain by moving them';
  return `stay: nothing to gain above what moving costs (${tokens(shiftPrice)} a place, \`arrange.shiftPrice\`)`;
}

function describePrefix({ prefix, promptTokens, blocks }: Explanation, style: Style): readonly string[] {
  const { sharedTokens, arrangedSharedTokens, break: broken } = prefix!;
  const share = (part: number) => `${Math.round((100 * part) / Math.max(1, promptTokens))} %`;
  const lines = [
    style.bold('behind the earlier request'),
    `  shared as it is     ${tokens(sharedTokens)} (${share(sharedTokens)})`,
  ];
  if (blocks.length > 0) {
    lines.push(
      `  shared in order     ${tokens(arrangedSharedTokens)} (${share(arrangedSharedTokens)})`,
      `  saves               ${tokens(Math.max(0, arrangedSharedTokens - sharedTokens))}`,
    );
  }
  return broken === null
    ? [...lines, '  it continues the earlier request to its end']
    : [...lines, ...describeBreak(broken, style)];
}

function describeBreak({ cause, piece, offset, before, now, remedy }: ExplainedBreak, style: Style): readonly string[] {
  return [
    `  first difference    ${piece}, character ${offset}: ${style.yellow(cause)}`,
    `    before  ${quoted(before)}`,
    `    now     ${quoted(now)}`,
    `  ${remedy}`,
  ];
}

/** A text with all of its characters, for JSON and YAML. */
function quoted(text: string): string {
  return printableJson(JSON.stringify(text));
}

function names(ids: readonly string[]): string {
  const shown = ids.slice(0, NAMES_SHOWN).join(', ');
  return ids.length > NAMES_SHOWN ? `${shown}, and ${ids.length - NAMES_SHOWN} more` : shown;
}

function tokens(count: number): string {
  return `${count.toLocaleString('en')} ${count === 1 ? 'token' : 'tokens'}`;
}

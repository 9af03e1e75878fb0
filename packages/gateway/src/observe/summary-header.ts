import type { ErrorSource, ReportSoFar } from '../shapes/shapes.js';

/** Every key of the `x-warmpath` header, in the order in which they are written: on which answers, and what it says. */
export const SUMMARY_FIELDS = {
  error: ['errors', 'Who failed: `gateway` (it refused the request, or broke) or `upstream` (the engine failed).'],
  overhead: ['forwarded requests', "The gateway's own milliseconds, from the complete body to the dispatch."],
  retrieval: ['requests with retrieval', 'Milliseconds in which passages were looked for.'],
  speculation: [
    'requests with retrieval',
    'Whether generation started before the search was over: `confirmed` (its answer is this one) or `wrong` (it was ended).',
  ],
  engine: ['several engines', 'The name of the engine that the request went to.'],
  policy: ['arranged requests', 'The ordering policy that decided.'],
  documents: ['arranged requests', 'Documents of the request, those that are referred to included.'],
  recognised: [
    'prompts that hold documents',
    'Each group of documents found in the prompt: format, number of documents, and `arranged`, `replayed`, `fixed` or `history`.',
  ],
  moved: ['arranged requests', 'Documents that do not stand at their retrieval rank.'],
  predicted: ['arranged requests', 'Prompt tokens that the engine is believed to have cached.'],
  conversation: [
    'named conversations',
    '`new`, `known`, `forgotten` (earlier turns are not known any more), or `ignored` (the request lacks an end user, where the operator configured where end users come from: it is not remembered).',
  ],
  replayed: ['named conversations', 'Earlier turns that went out as they had been rendered before.'],
  references: ['named conversations', 'Documents that the conversation still shows and that were not sent again.'],
  shortened: ['named conversations', 'Documents of which only parts were sent again.'],
  saved: ['named conversations', 'Estimated tokens that references and shortened documents saved.'],
  fallback: [
    'internal failures',
    'What was sent instead: `retrieval` (documents in retrieval order), `original` (the body as it came), `conversation` (without earlier turns: the shared store did not answer).',
  ],
  warnings: ['repaired requests', 'What was repaired or left out: up to eight, as `("CODE path" "CODE path")`.'],
  hidden: ['repaired requests', 'How many more warnings there are.'],
} as const satisfies Readonly<Record<string, readonly [on: string, meaning: string]>>;

/** Warnings that the summary names; the others are only counted. */
const WARNINGS_SHOWN = 8;

/**
 * What became of a request, in one header: for instance `overhead=0.412, policy=foresight, documents=20, moved=7,
 * predicted=3012`. Keys without anything to say are left out. `GET /v1/requests/{id}` tells the rest.
 */
export function summaryHeader(report: ReportSoFar): string {
  const { retrieval, engine, recognised, slots } = report;
  let fields = '';
  const add = (key: keyof typeof SUMMARY_FIELDS, value: number | string | undefined): void => {
    if (value !== undefined) fields += fields === '' ? `${key}=${value}` : `, ${key}=${value}`;
  };
  add('overhead', report.overheadMs?.toFixed(3));
  add('retrieval', retrieval?.ms.toFixed(3));
  add('speculation', retrieval?.speculation ?? undefined);
  add('engine', engine && quoted(engine.name));
  add('policy', report.policy);
  add('documents', report.documents);
  if (recognised !== undefined) add('recognised', quoted(recognisedSlots(slots)));
  add('moved', report.documentsMoved);
  add('predicted', report.predictedCachedTokens);
  add('conversation', report.conversation);
  add('replayed', report.replayedTurns || undefined);
  add('references', report.references || undefined);
  add('shortened', report.shortened || undefined);
  add('saved', report.deduplicatedTokens || undefined);
  add('fallback', report.fallback);
  const warnings = [...report.retrievalWarnings, ...report.warnings];
  if (warnings.length > 0) {
    add('warnings', `(${warningsShown(warnings)})`);
    if (warnings.length > WARNINGS_SHOWN) add('hidden', warnings.length - WARNINGS_SHOWN);
  }
  return withError(report.errorSource, fields);
}

/** A summary that says who failed, if somebody did. */
function withError(source: ErrorSource | undefined, summary: string): string {
  if (source === undefined) return summary;
  return summary === '' ? `error=${source}` : `error=${source}, ${summary}`;
}

function recognisedSlots(slots: ReportSoFar['slots']): string {
  return slots.map(({ format, documents, decided }) => `${format} ${documents} ${decided}`).join(', ');
}

function warningsShown(warnings: ReportSoFar['warnings']): string {
  return warnings
    .slice(0, WARNINGS_SHOWN)
    .map(({ code, path }) => quoted(`${code} ${path}`))
    .join(' ');
}

/** A string of structured fields: printable ASCII. */
function quoted(text: string): string {
  return `"${text.replace(/[^\x20-\x7e]/g, '?').replace(/["\\]/g, '\\$&')}"`;
}

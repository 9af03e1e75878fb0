import { invalid, type JsonFields } from './json-fields.js';

/** What counts as a right answer to one question. */
export interface GoldAnswers {
  /** Any of them is right; none for a question that the documents do not answer. */
  readonly answers: readonly string[];
}

/**
 * The right answers in a query's `metadata`, in one of three layouts: `answer: "text"`, `answers: ["text", …]`, or
 * `ground_truth: {answers: ["text", …]}`. Beside a list, `is_impossible: true` says that there is none, whatever the
 * list holds; so does an empty list. `undefined` where the metadata speak of no answer. Error:
 * `WARMPATH_INVALID_REQUEST` with the path.
 */
export function readGoldAnswers(metadata: JsonFields): GoldAnswers | undefined {
  if (metadata.has('ground_truth')) return readList(metadata.object('ground_truth'));
  if (metadata.has('answers')) return readList(metadata);
  return metadata.has('answer') ? { answers: [metadata.text('answer')] } : undefined;
}

function readList(fields: JsonFields): GoldAnswers {
  const isImpossible = fields.has('is_impossible') ? fields.raw('is_impossible') : false;
  if (typeof isImpossible !== 'boolean') throw invalid(fields.pathOf('is_impossible'), 'true or false was expected');
  const answers = fields.texts('answers').filter((answer) => answer !== '');
  return { answers: isImpossible ? [] : [...new Set(answers)] };
}

import { type AnswerScore, SCORE_NAMES } from '../evaluation/answer-score.js';
import type {
  EvaluationReport,
  EvaluationStrategy,
  StrategyDifference,
  StrategyFigures,
} from '../evaluation/evaluation-report.js';
import { type PricedStrategy, type ShiftPriceFit, shiftPriceOf } from '../evaluation/shift-price.js';
import type { Chart } from './chart.js';
import type { Report, ReportSection } from './report.js';
import { inPercent, percent, points, signed } from './wording.js';

/** What a score is called on the page. */
export const SCORE_TITLES: Readonly<Record<keyof AnswerScore, string>> = {
  exact: 'exact match',
  contains: 'contains the answer',
  f1: 'token F1',
};

/** What the prompts of a strategy hold, for a reader who knows none of the names. */
const MEANINGS: Readonly<Record<Exclude<EvaluationStrategy, PricedStrategy>, string>> = {
  retrieval: 'documents in retrieval order; in a conversation, all of every turn again.',
  repeated: 'the same once more: how much answers change by themselves.',
  shuffled: 'documents in random order.',
  'shuffled-hints': 'the same, with a hint that states the retrieval order.',
  arranged: 'documents in the order of the policy.',
  'arranged-hints': 'the same, with a hint that states the retrieval order.',
  forwarded: 'the documents of this turn alone, in retrieval order; of earlier turns question and answer.',
  deduplicated: 'what the conversation still shows is left out; the rest in the order of the policy.',
  'deduplicated-hints': 'the same, with hints that say where it stands and state the retrieval order.',
  'in-place':
    "retrieval's prompt, its documents recognised in it; the place of one that stands farther up says so, and new ones are in the order of the policy.",
};

function meaningOf(strategy: EvaluationStrategy): string {
  const price = shiftPriceOf(strategy);
  if (price === undefined) return MEANINGS[strategy as Exclude<EvaluationStrategy, PricedStrategy>];
  return `documents in the order of the policy, with a hint, where each place that one moves costs ${inTokens(price)}.`;
}

function inTokens(count: number): string {
  return `${count} ${count === 1 ? 'token' : 'tokens'}`;
}

/** The page of an evaluation. */
export function evaluationPage(report: EvaluationReport): Report {
  const { data, engine, model, policy, topK, passages, concurrency, seed, questions } = report;
  return {
    title: `warmpath lab eval: ${data}`,
    finding: evaluationFinding(report),
    facts: [
      { name: 'Data set', value: data },
      { name: 'Engine', value: engine },
      { name: 'Model', value: model },
      {
        name: 'Questions',
        value: `${questions.scored} answered by all strategies of ${questions.asked} asked, ${questions.unanswerable} of them without an answer in the documents`,
      },
      ...tooLongFacts(report),
      { name: 'Documents', value: `${topK} a question, ${passages}` },
      { name: 'Policy', value: policy },
      { name: 'At a time', value: `${concurrency} ${concurrency === 1 ? 'request' : 'requests'}` },
      { name: 'Seed', value: String(seed) },
      ...(report.startedWarm
        ? [
            {
              name: 'Attention',
              value:
                'the engine held these prompts before the run: cached tokens and times are not those of a cold cache',
            },
          ]
        : []),
    ],
    sections: [
      ...priceSection(report),
      scoreSection(report),
      ...kindSection(report),
      ...differenceSection(report),
      costSection(report),
    ],
  };
}

function tooLongFacts(report: EvaluationReport): Report['facts'] {
  const note = tooLongNote(report);
  return note === undefined ? [] : [{ name: 'Too long', value: note }];
}

/**
 * How many questions did not fit the model's context, with which strategies, and what helps; `undefined` if all did.
 */
export function tooLongNote({ questions, strategies, contextTokens }: EvaluationReport): string | undefined {
  if (questions.tooLong === 0) return undefined;
  const context =
    contextTokens === null ? "the model's context" : `the ${contextTokens.toLocaleString('en-US')} tokens of the model`;
  const counts = strategies.flatMap(({ strategy, failures }) => {
    const count = failures['WARMPATH_CONTEXT_TOO_LONG'] ?? 0;
    return count === 0 ? [] : [`${strategy} ${count}`];
  });
  return (
    `${questions.tooLong} of ${questions.asked} questions did not fit ${context} with every strategy (${counts.join(', ')}) and are in no figure, ` +
    'so the longest prompts are missing: fewer passages (--top-k) or a model with a longer context lets them in'
  );
}

/** Below this token F1 in retrieval order, there is nothing that an order of documents could spoil. */
const WEAK_F1 = 0.05;
/** The strategies that the result is about: what a gateway does unless configured otherwise. */
const JUDGED: ReadonlyMap<EvaluationStrategy, string> = new Map([
  ['arranged', 'arranging'],
  ['deduplicated-hints', 'de-duplication with hints'],
]);

/**
 * The result in one sentence: whether arranging, or de-duplication, changed the answers, by token F1, and what it
 * saved; where prices of moving documents were tried, which one to take.
 */
export function evaluationFinding(report: EvaluationReport): string {
  const { questions, strategies, differences, data, shiftPrices } = report;
  if (shiftPrices !== undefined) return priceFinding(report, shiftPrices);
  const judged = differences.find(({ strategy }) => JUDGED.has(strategy));
  const [baseline] = strategies;
  if (judged === undefined) return `On ${data}, too few questions are answered by all strategies to compare.`;
  const { mean, low, high, p } = judged.f1;
  const { lost, gained } = judged.answers;
  const range = `${signed(100 * mean, 1)}\u00a0points of token F1, 95\u00a0% interval ${signed(100 * low, 1)} to ${signed(100 * high, 1)}, p\u00a0${p < 0.001 ? '' : '=\u00a0'}${writeP(p)}; ${lost} exact answers lost, ${gained} gained`;
  const own = strategies.find(({ strategy }) => strategy === judged.strategy)!;
  const shares = [baseline!, own].map(({ cachedShare }) => cachedShare);
  const saving =
    shares[0] === null || shares[1] === null
      ? ''
      : `; ${percent(shares[1]!)} of the prompt tokens come from the cache instead of ${percent(shares[0]!)}`;
  const fewer =
    baseline!.promptTokens === null || own.promptTokens === null || own.promptTokens >= baseline!.promptTokens
      ? ''
      : `; prompts are ${percent(1 - own.promptTokens / baseline!.promptTokens)} shorter`;
  const change = JUDGED.get(judged.strategy)!;
  const verdict =
    low > 0
      ? `${change} improves the answers`
      : high < 0
        ? `${change} costs answers`
        : `${change} makes no difference that can be told from chance`;
  return `On ${questions.scored} questions of ${data}, ${verdict} (${range})${fewer}${saving}${weakness(baseline!)}.`;
}

function weakness({ f1 }: StrategyFigures): string {
  return f1.mean < WEAK_F1 ? '; the model answers hardly anything right, so this says little' : '';
}

function priceFinding(
  { questions, strategies, data }: EvaluationReport,
  { tolerance, prices, suggested }: ShiftPriceFit,
): string {
  const margin = `a loss of more than ${points(tolerance)}\u00a0points of token F1`;
  const on = `On ${questions.scored} questions of ${data}`;
  if (suggested === null) {
    return `${on}, no price of moving documents is shown to keep the answers (${margin} cannot be ruled out): ask more questions, or leave retrieval order (\`arrange.policy: retrieval\`).`;
  }
  const { f1, computed } = prices.find(({ price }) => price === suggested)!;
  const range = `token F1 ${signed(100 * f1.mean, 1)}\u00a0points, 95\u00a0% interval ${signed(100 * f1.low, 1)} to ${signed(100 * f1.high, 1)}`;
  const saving = computed === null ? '' : `; ${signed(100 * computed, 1)}\u00a0% tokens to compute`;
  return `${on}, \`arrange.shiftPrice: ${suggested}\` is the lowest price tried that keeps the answers: ${margin} is ruled out (${range}${saving})${weakness(strategies[0]!)}.`;
}

/** Quality against the price of moving documents, and the price to take. */
function priceSection({ shiftPrices }: EvaluationReport): ReportSection[] {
  if (shiftPrices === undefined) return [];
  const { prices, tolerance } = shiftPrices;
  return [
    {
      heading: 'What a price of moving documents keeps and saves',
      text: [
        `A document moves where that saves more tokens than the places cost that it moves by. Token F1 against retrieval order, with 95 % intervals: a price keeps the answers where no loss of more than ${points(tolerance)} points can be missed by chance: the interval ends above it, and enough questions were asked to have shown it.`,
      ],
      figures: [
        {
          charts: [
            {
              kind: 'intervals',
              title: 'token F1 against retrieval order',
              axis: { title: 'difference in percentage points', format: 'points' },
              rows: prices.map(({ price, f1 }) => ({
                label: `${inTokens(price)} a place`,
                value: f1.mean,
                low: f1.low,
                high: f1.high,
              })),
              areDifferences: true,
            },
          ],
          table: {
            caption: 'Places moved a question, token F1 in points and tokens to compute, against retrieval order',
            columns: ['tokens a place', 'places moved', 'token F1', 'low', 'high', 'may lose', 'computed', 'keeps'],
            rows: prices.map(({ price, placesMoved, f1, mayLose, computed, keepsAnswers }) => [
              String(price),
              placesMoved.toFixed(2),
              ...[f1.mean, f1.low, f1.high].map((value) => signed(100 * value, 1)),
              points(mayLose),
              computed === null ? 'not reported' : `${signed(100 * computed, 1)}\u00a0%`,
              keepsAnswers ? 'yes' : 'not shown',
            ]),
          },
        },
      ],
      notes: [
        'Prices are tried from the highest downwards, and the first that is not shown to keep the answers ends it.',
      ],
    },
  ];
}

/** A p-value as it is printed. */
export function writeP(p: number): string {
  return p < 0.001 ? '<\u00a00.001' : p.toFixed(3);
}

function scoreSection({ strategies }: EvaluationReport): ReportSection {
  return {
    heading: 'How good the answers are',
    text: [
      'Means over the questions that all strategies answered, after the normalisation of SQuAD. Whiskers are 95 % bootstrap intervals over questions; strategies are best compared by the differences below, for the questions are the same.',
    ],
    figures: [
      {
        charts: SCORE_NAMES.map(
          (name): Chart => ({
            kind: 'intervals',
            title: SCORE_TITLES[name],
            axis: { title: 'mean over questions', format: 'share' },
            rows: strategies.map((figures) => {
              const { mean, low, high } = figures[name];
              return { label: figures.strategy, value: mean, low, high };
            }),
          }),
        ),
        table: {
          caption: 'Scores in percent, with 95 % intervals',
          groups: SCORE_NAMES.map((name) => ({ name: SCORE_TITLES[name], columns: 3 })),
          columns: ['strategy', ...SCORE_NAMES.flatMap(() => ['mean', 'low', 'high'])],
          rows: strategies.map((figures) => [
            figures.strategy,
            ...SCORE_NAMES.flatMap((name) => scoreCells(figures, name)),
          ]),
        },
      },
    ],
    notes: strategies.map(({ strategy }) => `${strategy}: ${meaningOf(strategy)}`),
  };
}

function scoreCells(figures: StrategyFigures, name: keyof AnswerScore): string[] {
  const { mean, low, high } = figures[name];
  return [mean, low, high].map(inPercent);
}

/** What stands above a table of kinds. */
const KINDS_CAPTION = 'Exact match by kind of question';

function kindSection({ kinds, strategies }: EvaluationReport): ReportSection[] {
  if (kinds.length === 0) return [];
  return [
    {
      heading: 'By kind of question',
      text: [
        'Where the document with the answer stands: in the first turn, new in a later one, or shown so many turns before. A strategy that leaves out what was shown relies on the model to look that far back.',
      ],
      figures: [
        {
          table: {
            caption: KINDS_CAPTION,
            columns: ['kind', 'questions', ...strategies.map(({ strategy }) => strategy)],
            rows: kinds.map(({ kind, questions, strategies: figures }) => [
              kind,
              String(questions),
              ...figures.map(({ exact }) => exact.toFixed(3)),
            ]),
          },
        },
      ],
      notes: [],
    },
  ];
}

function differenceSection({ differences, questions }: EvaluationReport): ReportSection[] {
  if (differences.length === 0) return [];
  return [
    {
      heading: 'Against retrieval order',
      text: [
        'Differences question by question: right of zero, a strategy answers better. Strategies with hints are also compared with the same without.',
      ],
      figures: [
        {
          charts: SCORE_NAMES.map(
            (name): Chart => ({
              kind: 'intervals',
              title: SCORE_TITLES[name],
              axis: { title: 'difference in percentage points', format: 'points' },
              rows: differences.map((difference) => {
                const { mean, low, high } = difference[name];
                return { label: differenceTitle(difference), value: mean, low, high };
              }),
              areDifferences: true,
            }),
          ),
          table: {
            caption: 'Paired differences in points, with 95 % bootstrap intervals and paired t-tests',
            columns: ['strategy, score', 'difference', 'low', 'high', 't', 'p'],
            rows: differences.flatMap((difference) => SCORE_NAMES.map((name) => differenceRow(difference, name))),
          },
        },
        {
          table: {
            caption: 'Answers with another text; exact answers lost and gained, with the exact randomisation test',
            columns: ['strategy', 'other text', 'lost', 'gained', 'p'],
            rows: differences.map((difference) => {
              const { changed, lost, gained, p } = difference.answers;
              return [differenceTitle(difference), String(changed), String(lost), String(gained), writeP(p)];
            }),
          },
        },
      ],
      notes: [
        `Intervals and tests say how sure a difference is on questions like these. ${differences.length * (SCORE_NAMES.length + 1)} tests are made here, so a p-value below 0.05 among them is no surprise.`,
        ...(questions.conversations === 0
          ? []
          : ['The questions of a conversation count as one in intervals and tests: they share most of their prompts.']),
        'Each strategy has a cache salt of its own, so that none is served from what another left in the cache. Where the engine knows no salts, a number stands before the system prompt instead, and models may take notice of it.',
      ],
    },
  ];
}

/** What is compared with what; retrieval order goes without saying. */
export function differenceTitle({ strategy, baseline }: StrategyDifference): string {
  return baseline === 'retrieval' ? strategy : `${strategy} against ${baseline}`;
}

function differenceRow(difference: StrategyDifference, name: keyof AnswerScore): string[] {
  const { mean, low, high, t, p } = difference[name];
  const cells = [mean, low, high].map((value) => signed(100 * value, 1));
  return [`${differenceTitle(difference)}, ${SCORE_TITLES[name]}`, ...cells, t === null ? '' : t.toFixed(2), writeP(p)];
}

function costSection({ strategies }: EvaluationReport): ReportSection {
  const count = (value: number | null) => (value === null ? 'not reported' : value.toLocaleString('en-US'));
  return {
    heading: 'What it costs',
    text: ['Over the same questions. Times are those of the engine under test, measured at this end.'],
    figures: [
      {
        table: {
          caption: 'Prompt tokens, cached tokens, time to first token, and requests that failed',
          columns: ['strategy', 'prompt', 'cached', 'share', 'mean TTFT ms', 'reordered', 'failed'],
          rows: strategies.map((figures) => [
            figures.strategy,
            count(figures.promptTokens),
            count(figures.cachedTokens),
            figures.cachedShare === null ? '' : percent(figures.cachedShare),
            figures.ttftMs.mean.toFixed(1),
            String(figures.moved),
            writeFailures(figures.failures),
          ]),
        },
      },
    ],
    notes: [],
  };
}

/** How many requests failed, and with what. */
export function writeFailures(failures: Readonly<Record<string, number>>): string {
  const entries = Object.entries(failures).sort(([one], [other]) => (one < other ? -1 : 1));
  return entries.length === 0 ? '0' : entries.map(([code, count]) => `${count} ${code}`).join(', ');
}

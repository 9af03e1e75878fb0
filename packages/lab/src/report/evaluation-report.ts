import { type AnswerScore, SCORE_NAMES } from '../evaluation/answer-score.js';
import type { EvaluationReport, StrategyDifference, StrategyFigures } from '../evaluation/evaluation-report.js';
import type { Chart } from './chart.js';
import type { Report, ReportSection } from './report.js';
import { percent, signed } from './wording.js';

/** What a score is called on the page. */
export const SCORE_TITLES: Readonly<Record<keyof AnswerScore, string>> = {
  exact: 'exact match',
  contains: 'contains the answer',
  f1: 'token F1',
};

/** The page of an evaluation. */
export function evaluationPage(report: EvaluationReport): Report {
  const { data, engine, model, policy, topK, concurrency, seed, questions } = report;
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
      { name: 'Documents', value: `${topK} a question, found by BM25` },
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
    sections: [scoreSection(report), ...differenceSection(report), costSection(report)],
  };
}

/** Below this token F1 in retrieval order, there is nothing that an order of documents could spoil. */
const WEAK_F1 = 0.05;

/** The result in one sentence: whether arranging, or de-duplication, changed the answers, by token F1, and what it saved. */
export function evaluationFinding({ questions, strategies, differences, data }: EvaluationReport): string {
  const [arranged] = differences;
  const [baseline] = strategies;
  if (arranged === undefined) return `On ${data}, one question is answered by all strategies: too few to compare.`;
  const { mean, low, high, p } = arranged.f1;
  const range = `${signed(100 * mean, 1)}\u00a0points of token F1, 95\u00a0% interval ${signed(100 * low, 1)} to ${signed(100 * high, 1)}, p\u00a0${p < 0.001 ? '' : '=\u00a0'}${writeP(p)}`;
  const shares = [baseline!, strategies[1]!].map(({ cachedShare }) => cachedShare);
  const saving =
    shares[0] === null || shares[1] === null
      ? ''
      : `; ${percent(shares[1]!)} of the prompt tokens come from the cache instead of ${percent(shares[0]!)}`;
  const weak = baseline!.f1.mean < WEAK_F1 ? '; the model answers hardly anything right, so this says little' : '';
  const change = arranged.strategy === 'arranged' ? 'arranging' : 'de-duplication';
  const verdict =
    low > 0
      ? `${change} improves the answers`
      : high < 0
        ? `${change} costs answers`
        : `${change} makes no difference that can be told from chance`;
  return `On ${questions.scored} questions of ${data}, ${verdict} (${range})${saving}${weak}.`;
}

/** A p-value as it is printed. */
export function writeP(p: number): string {
  return p < 0.001 ? '<\u00a00.001' : p.toFixed(3);
}

function scoreSection({ strategies }: EvaluationReport): ReportSection {
  return {
    heading: 'How good the answers are',
    text: [
      'Means over the questions that all strategies answered, after the normalisation of SQuAD. Bars are 95 % bootstrap intervals over questions; strategies are best compared by the differences below, for the questions are the same.',
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
          caption: 'Scores with 95 % intervals',
          groups: SCORE_NAMES.map((name) => ({ name: SCORE_TITLES[name], columns: 3 })),
          columns: ['strategy', ...SCORE_NAMES.flatMap(() => ['mean', 'low', 'high'])],
          rows: strategies.map((figures) => [
            figures.strategy,
            ...SCORE_NAMES.flatMap((name) => scoreCells(figures, name)),
          ]),
        },
      },
    ],
    notes: [],
  };
}

function scoreCells(figures: StrategyFigures, name: keyof AnswerScore): string[] {
  const { mean, low, high } = figures[name];
  return [mean, low, high].map((value) => value.toFixed(4));
}

function differenceSection({ differences }: EvaluationReport): ReportSection[] {
  if (differences.length === 0) return [];
  return [
    {
      heading: 'Against retrieval order',
      text: ['Differences question by question: right of zero, a strategy answers better than retrieval order.'],
      figures: [
        {
          charts: SCORE_NAMES.map(
            (name): Chart => ({
              kind: 'intervals',
              title: SCORE_TITLES[name],
              axis: { title: 'difference of means', format: 'share' },
              rows: differences.map((difference) => {
                const { mean, low, high } = difference[name];
                return { label: difference.strategy, value: mean, low, high };
              }),
              zero: 0,
            }),
          ),
          table: {
            caption: 'Paired differences in points, with 95 % bootstrap intervals and paired t-tests',
            columns: ['strategy, score', 'difference', 'low', 'high', 't', 'p'],
            rows: differences.flatMap((difference) => SCORE_NAMES.map((name) => differenceRow(difference, name))),
          },
        },
      ],
      notes: [
        'Intervals and tests say how sure a difference is on questions like these. Six tests are made here: one p-value below 0.05 among them is no surprise.',
        'Each strategy has a number of its own before the system prompt, so that no strategy is served from what another left in the cache. Models may take notice of it.',
      ],
    },
  ];
}

function differenceRow(difference: StrategyDifference, name: keyof AnswerScore): string[] {
  const { mean, low, high, t, p } = difference[name];
  const cells = [mean, low, high].map((value) => signed(100 * value, 1));
  return [`${difference.strategy}, ${SCORE_TITLES[name]}`, ...cells, t === null ? '' : t.toFixed(2), writeP(p)];
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

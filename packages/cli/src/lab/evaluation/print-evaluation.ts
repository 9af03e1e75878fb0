import {
  type BootstrapMean,
  differenceTitle,
  type EvaluationReport,
  evaluationFinding,
  SCORE_NAMES,
  SCORE_TITLES,
  type ScoreDifference,
  tooLongNote,
  writeFailures,
  writeP,
} from '@warmpath/lab';
import { percent, type Terminal } from '../../terminal.js';

/** Prints an evaluation for a person: scores, differences, cost, and the sentence that sums them up. */
export function printEvaluation(report: EvaluationReport, terminal: Terminal): void {
  const { questions, strategies, differences, kinds, shiftPrices } = report;
  const { scored, asked, unanswerable, conversations } = questions;
  const from =
    conversations === 0 ? '' : ` from ${conversations} ${conversations === 1 ? 'conversation' : 'conversations'}`;
  terminal.line(
    `${terminal.style.bold(report.data)}: ${scored} questions${from} answered by all strategies of ${asked} asked, ` +
      `${unanswerable} without an answer in the documents; model ${report.model}`,
  );
  const tooLong = tooLongNote(report);
  if (tooLong !== undefined) terminal.line(`${tooLong}.`);
  terminal.line();
  printTable(terminal, [
    ['strategy', ...SCORE_NAMES.map((name) => SCORE_TITLES[name])],
    ...strategies.map((figures) => [
      figures.strategy,
      ...SCORE_NAMES.map((name) => {
        const { mean, low, high } = figures[name];
        return `${percent(mean)} [${points(low)}, ${points(high)}]`;
      }),
    ]),
  ]);
  if (differences.length > 0) {
    printTable(terminal, [
      [
        'against retrieval order',
        'other text',
        'lost',
        'gained',
        'exact test',
        ...SCORE_NAMES.map((name) => SCORE_TITLES[name]),
      ],
      ...differences.map((difference) => {
        const { changed, lost, gained, p } = difference.answers;
        return [
          differenceTitle(difference),
          ...[changed, lost, gained].map(String),
          `p ${writeP(p)}`,
          ...SCORE_NAMES.map((name) => writeDifference(difference[name])),
        ];
      }),
    ]);
  }
  if (kinds.length > 0) {
    printTable(terminal, [
      ['exact match by kind', 'questions', ...strategies.map(({ strategy }) => strategy)],
      ...kinds.map(({ kind, questions: count, strategies: figures }) => [
        kind,
        String(count),
        ...figures.map(({ exact }) => percent(exact)),
      ]),
    ]);
  }
  printTable(terminal, [
    ['strategy', 'prompt tokens', 'cached', 'mean TTFT ms', 'reordered', 'failed'],
    ...strategies.map(({ strategy, promptTokens, cachedTokens, ttftMs, moved, failures }) => [
      strategy,
      promptTokens?.toLocaleString('en-US') ?? 'not reported',
      cachedTokens?.toLocaleString('en-US') ?? 'not reported',
      ttftMs.mean.toFixed(1),
      String(moved),
      writeFailures(failures),
    ]),
  ]);
  if (shiftPrices !== undefined) {
    printTable(terminal, [
      ['tokens a place', 'places moved', 'token F1 against retrieval order', 'may lose', 'computed', 'keeps'],
      ...shiftPrices.prices.map(({ price, placesMoved, f1, mayLose, computed, keepsAnswers }) => [
        String(price),
        placesMoved.toFixed(2),
        writeChange(f1),
        points(mayLose),
        computed === null ? 'not reported' : `${computed < 0 ? '' : '+'}${percent(computed)}`,
        keepsAnswers ? 'yes' : 'not shown',
      ]),
    ]);
  }
  if (report.startedWarm) {
    terminal.line(
      '  The engine held these prompts before the run: restart it or take another --seed for cold figures.',
    );
    terminal.line();
  }
  terminal.line(terminal.style.bold(evaluationFinding(report)));
}

function printTable(terminal: Terminal, rows: readonly (readonly string[])[]): void {
  terminal.table(rows);
  terminal.line();
}

function writeDifference(difference: ScoreDifference): string {
  return `${writeChange(difference)} p ${writeP(difference.p)}`;
}

function writeChange({ mean, low, high }: BootstrapMean): string {
  return `${mean < 0 ? '' : '+'}${percent(mean)} [${points(low)}, ${points(high)}]`;
}

function points(share: number): string {
  return (100 * share).toFixed(1);
}

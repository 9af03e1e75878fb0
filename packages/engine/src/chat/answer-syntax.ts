import type { TemplateTraits } from './template-traits.js';
import { type CallFormat, callFormats } from './tool-call-formats.js';

/** What a model encloses its reasoning in. */
interface ReasoningTags {
  readonly open: string;
  readonly close: string;
}

/** What there is of an answer. */
interface AnswerBeginning {
  readonly content: string;
  readonly reasoning: string;
  /** Whether the reasoning goes on. */
  readonly isReasoning: boolean;
}

/** How a model writes an answer: its reasoning, its calls, and the text. */
export interface AnswerSyntax {
  readonly isHarmony: boolean;
  readonly reasoning: ReasoningTags | undefined;
  readonly calls: readonly CallFormat[];
  /** Texts of which the special tokens are shown in an answer, so that it can be read. */
  readonly marks: readonly string[];
  /** What stands behind the prompt where the answer's text begins at once. */
  contentOpening(isReasoningOpen: boolean): string;
  /** A prompt and the beginning of its answer, as the model would have written it. */
  continue(prompt: string, beginning: AnswerBeginning): string;
}

/** The families' tags. A template is taken to use the first pair that stands in its source. */
const REASONING_TAGS: readonly ReasoningTags[] = [
  { open: '<think>\n', close: '\n</think>\n\n' },
  { open: '[THINK]', close: '[/THINK]' },
  { open: '<seed:think>', close: '</seed:think>' },
  { open: '<mm:think>', close: '</mm:think>' },
  { open: '<|START_THINKING|>', close: '<|END_THINKING|>' },
  { open: '<|channel>thought\n', close: '<channel|>' },
  { open: '<|inner_prefix|>', close: '<|inner_suffix|>' },
];

const HARMONY_CONTENT = '<|channel|>final<|message|>';

export function answerSyntax(source: string, { isHarmony }: TemplateTraits): AnswerSyntax {
  if (isHarmony) {
    const tags = { open: '<|channel|>analysis<|message|>', close: '<|end|>' };
    return {
      isHarmony,
      reasoning: tags,
      calls: [],
      marks: ['<|start|><|channel|><|constrain|><|message|><|end|>'],
      contentOpening: () => HARMONY_CONTENT,
      continue: (prompt, { content, reasoning, isReasoning }) => {
        const thoughts = reasoning === '' ? '' : tags.open + reasoning;
        const separator = reasoning === '' ? '' : '<|end|><|start|>assistant';
        return prompt + thoughts + (isReasoning ? '' : separator + HARMONY_CONTENT + content);
      },
    };
  }
  const tags = REASONING_TAGS.find(({ open, close }) => source.includes(open.trim()) && source.includes(close.trim()));
  const calls = callFormats(source);
  return {
    isHarmony,
    reasoning: tags,
    calls,
    marks: [
      ...(tags === undefined ? [] : [tags.open, tags.close]),
      ...calls.flatMap(({ open, close = '', inner = [] }) => [open, close, ...inner]),
    ],
    contentOpening: (isOpen) => (isOpen ? tags!.close : ''),
    continue: (prompt, { content, reasoning, isReasoning }) => {
      if (tags === undefined) return prompt + content;
      const trimmed = prompt.trimEnd();
      const isClosed = trimmed.endsWith(tags.close.trim());
      if (isClosed && reasoning === '') return prompt + content;
      // The template may have opened the reasoning, or left it empty.
      const isBegun = isClosed || trimmed.endsWith(tags.open.trim());
      const start = isBegun ? prompt.lastIndexOf(tags.open.trim()) : -1;
      const before = start < 0 ? prompt : prompt.slice(0, start);
      return before + tags.open + reasoning + (isReasoning ? '' : tags.close + content);
    },
  };
}

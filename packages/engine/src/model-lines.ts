import type { ServedModel } from './server.js';

const REUSE: Readonly<Record<ServedModel['reuse'], string>> = {
  prefix: 'every prefix that prompts share, to the token',
  checkpoint: 'from checkpoints at the ends of documents, messages and prompts',
  none: 'none: every prompt is computed whole',
};
const TEMPLATES: Readonly<Record<NonNullable<ServedModel['template']>['source'], string>> = {
  model: "the model's own",
  options: 'as the options say',
  chatml: 'ChatML, as the file has none',
};

/** What a user should know of a model before the first request: labels of at most 8 letters, each with one line. */
export function modelLines(model: ServedModel): readonly (readonly [label: string, text: string])[] {
  const { name, architecture, parameters, template, contextTokens, reuse } = model;
  return [
    ['model', `${name} (${architecture}, ${parameters.toLocaleString('en')} parameters)`],
    ['cpu', cpuText(model)],
    ['context', `${contextTokens.toLocaleString('en')} tokens a request`],
    ['reuse', REUSE[reuse]],
    ...(template === undefined
      ? [['answers', 'embeddings alone: this model generates no text'] as const]
      : [
          ['template', template.problem ?? TEMPLATES[template.source]] as const,
          [
            'tools',
            `described to the model by ${template.describesTools ? 'its template' : 'a system message'}`,
          ] as const,
        ]),
  ];
}

/** Which CPU code llama.cpp computes a model with, and why. */
export function cpuText({ cpuVariant: { name, reason } }: Pick<ServedModel, 'cpuVariant'>): string {
  return `${name} (${reason})`;
}

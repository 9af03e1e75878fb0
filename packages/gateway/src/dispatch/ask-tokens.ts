import type { ArrangedPrompt } from '../arrange/arranged-prompt.js';
import type { Call } from '../arrange/prepare-prompt.js';
import type { Engine } from '../engines/engine.js';
import { tokenizeBody } from '../engines/prompt-tokens.js';
import type { UpstreamRequest } from '../engines/upstream.js';
import type { Gateway } from '../gateway.js';
import type { BodyView } from '../json/body-view.js';
import { engineHeaders, IDENTITY, promptHeaders } from './forward.js';

/** Where the tokens of a prompt are asked for, of an engine that nothing is known of. */
const TOKENIZER = '/tokenize';

/** Asks an engine which tokens a prompt becomes; `undefined` for one that it cannot be asked about. */
export function tokensRequest(
  engine: Engine,
  call: Call,
  sent: BodyView,
): (UpstreamRequest & { readonly body: Buffer }) | undefined {
  const body = tokenizeBody(sent);
  if (body === undefined) return undefined;
  const headers = engineHeaders(engine, call.request, promptHeaders(engine, call), IDENTITY);
  return { method: 'POST', path: engine.dialect.tokenizer ?? TOKENIZER, headers, body };
}

/** The text that stands in a prompt for each document, in its order. */
export function documentTexts({ documents: { cache } }: Gateway, prompt: ArrangedPrompt): readonly string[] {
  return prompt.arrangements.flatMap(({ documents }) =>
    documents.map((document) =>
      prompt.isInserted ? (JSON.parse(`"${cache.rendered(document)}"`) as string) : document.content,
    ),
  );
}

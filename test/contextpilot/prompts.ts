import { InPlacePrompts } from '@warmpath/gateway';
import { expect } from 'vitest';
import { answerAsAsked } from '../../packages/gateway/test/fake-engine.js';
import { type Stand, type StandConfig, send, stand } from '../../packages/gateway/test/harness.js';

export const PORT = 'The harbour of Velmora was dredged in 1931 so that grain ships could moor at the inner quay.';
export const LAMP = 'Lanterns from the Tiber workshop burn colza oil; a full reservoir lasts nine hours.';
export const PEAR = 'The north orchard carries forty rows of late pears, which are picked after the first frost.';

export const CHAT = '/v1/chat/completions';
export const MESSAGES = '/v1/messages';

/** Documents as most prompts write them. */
export const docs = (...texts: readonly string[]) =>
  `<warmpath-documents>${texts.map((text) => `<document>${text}</document>`).join('')}</warmpath-documents>`;

/** A chat of one question. */
export const user = (content: string, ...before: readonly object[]) => ({
  model: 'm',
  messages: [...before, { role: 'user', content }],
});

export const contentOf = (body: string) =>
  (JSON.parse(body) as { messages: { content: string }[] }).messages.at(-1)!.content;

/** A gateway in front of a fake engine. */
export function searching(config: StandConfig = {}): Promise<Stand> {
  return stand(answerAsAsked, config);
}

/** Sends a request and answers what the engine got of it. */
export async function through({ gateway, engine }: Stand, body: object, path = CHAT): Promise<string> {
  expect((await send(`${gateway.url}${path}`, body)).status).toBe(200);
  return engine.last.body;
}

/** The same for documents that have a known form and are allowed to move, without a gateway. */
export function reorderedByForm(first: object, second: object): string {
  const prompts = new InPlacePrompts();
  prompts.placeChat(JSON.stringify(first));
  return prompts.placeChat(JSON.stringify(second)).body;
}

/** Serves one order, then asks for another, and answers what the engine got of that. */
export async function reordered(first: object, second: object, path?: string): Promise<string> {
  const gateway = await searching();
  await through(gateway, first, path);
  return through(gateway, second, path);
}

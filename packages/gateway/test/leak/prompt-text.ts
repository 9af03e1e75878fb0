import type { ReceivedRequest } from '../fake-engine.js';

/** A document as it stands in a prompt. */
interface ShownDocument {
  readonly label: string;
  readonly text: string;
  readonly start: number;
  readonly end: number;
}

/** A label that a hint refers to. */
interface ReferredLabel {
  readonly label: string;
  readonly at: number;
}

/** The prompt that an engine received, as one text. */
export interface PromptText {
  readonly text: string;
  /** Where the part begins that was added in this request: behind the model's last message. */
  readonly newest: number;
  readonly shown: readonly ShownDocument[];
  /** From lines that the gateway wrote; what stands inside of documents does not count. */
  readonly referred: readonly ReferredLabel[];
}

const ELEMENT = /<document id="([^"]*)"(?: title="[^"]*")?>\n([\s\S]*?)\n<\/document>\n/g;
const LOCATION_HINT = /^Given earlier in this conversation: (\[.*\])\.$/gm;

/** Reads a body that an engine received, in any of the APIs. */
export function promptText(received: Pick<ReceivedRequest, 'body'>): PromptText {
  const body = JSON.parse(received.body) as Record<string, unknown>;
  let text = '';
  let newest = 0;
  const add = (content: unknown) => {
    text += `${textOf(content)}\n`;
  };
  for (const opening of [body['system'], body['instructions']]) if (opening !== undefined) add(opening);
  for (const message of (body['messages'] ?? body['input'] ?? []) as { role?: string; content?: unknown }[]) {
    add(message.content);
    if (message.role === 'assistant') newest = text.length;
  }
  const shown = [...text.matchAll(ELEMENT)].map(([whole, label, inside], index, all) => {
    const start = all[index]!.index;
    return { label: label!, text: plain(inside!), start, end: start + whole.length };
  });
  const referred = [...text.matchAll(LOCATION_HINT)].flatMap(({ 1: names, index: at }) =>
    shown.some(({ start, end }) => at > start && at < end)
      ? []
      : [...names!.matchAll(/\[([^[\]]+)\]/g)].map(([, label]) => ({ label: label!, at })),
  );
  return { text: plain(text), newest, shown, referred };
}

const CHARACTERS: Readonly<Record<string, string>> = { lt: '<', gt: '>', quot: '"', amp: '&' };

/** A text as it was before it was written into a prompt, however often its characters were escaped. */
export function plain(text: string): string {
  return text.replace(/&(?:amp;)*(lt|gt|quot|amp);/g, (_, name: string) => CHARACTERS[name]!);
}

function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  return content.map((part: { text?: unknown }) => (typeof part?.text === 'string' ? part.text : '')).join('');
}

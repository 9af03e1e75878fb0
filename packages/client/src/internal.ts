/**
 * What Warmpath's own adapters and command line share beyond the public names of `@warmpath/client`. No promise of
 * stability: any release may change or remove a name.
 */

export { arrangeOrKeep, type KeepOptions } from './arrange-or-keep.js';
export { arrangePrompt, type PromptMessage, type PromptOptions } from './arrange-prompt.js';
export { OpenContexts, type SentContexts } from './open-contexts.js';
export { readServerSentEvents } from './server-sent-events.js';

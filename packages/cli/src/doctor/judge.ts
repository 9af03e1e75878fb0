import { cpuText } from '@warmpath/engine';
import { type Dialect, dialectOf, dialectOfOwner, withCheckpoints } from '@warmpath/gateway';
import type { EngineFacts } from './examine.js';

/** `unknown`: the engine does not say. */
export type Verdict = 'ok' | 'warning' | 'failed' | 'unknown';

/** One line of the doctor's findings. */
export interface Check {
  readonly name: string;
  readonly verdict: Verdict;
  readonly finding: string;
  /** What to do about it; absent where there is nothing to do. */
  readonly advice?: string;
}

/** A repeated prompt that starts in less than this share of the time shows a cache even where none is reported. */
const CLEARLY_SOONER = 0.6;

const EVENTS_OPTION =
  'start vLLM with --kv-events-config \'{"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558"}\'';

/** Turns facts into findings, with advice in the terms of the engine at hand. Pure. */
export function judge(facts: EngineFacts): readonly Check[] {
  return [
    models(facts),
    dialect(facts),
    caching(facts),
    sharedPrefix(facts),
    blockSize(facts),
    reporting('cached tokens, unstreamed', facts.repeat.cachedTokens, facts),
    reporting('cached tokens, streamed', facts.repeat.streamedCachedTokens, facts),
    ttft(facts),
    ...libraries(facts),
    tokenize(facts),
    ...events(facts),
  ];
}

function models({ models, model, owner }: EngineFacts): Check {
  const others = models.length > 1 ? ` and ${models.length - 1} more` : '';
  const by = owner === undefined ? '' : ` (${owner})`;
  return { name: 'models', verdict: 'ok', finding: `${model}${others}${by}` };
}

function dialect(facts: EngineFacts): Check {
  const name = 'kind of engine';
  const { title, reuse, salt, advice } = dialectOfFacts(facts);
  const known = facts.dialect === undefined && dialectOfOwner(facts.owner) === undefined;
  if (known) {
    const finding = 'not stated; it is taken for one that caches blocks, the least recently used first to go';
    return { name, verdict: 'unknown', finding, advice: 'say it in `upstream.dialect`, if it is one of those' };
  }
  const separated = salt === undefined ? '; tenants share what it caches' : '';
  // What the engine says of its KV events comes with the option.
  const tuning = advice.tuning === undefined || facts.cache.eventSources !== undefined ? {} : { advice: advice.tuning };
  return { name, verdict: 'ok', finding: `${title}: ${describeReuse(reuse, facts.blockSize)}${separated}`, ...tuning };
}

function describeReuse(reuse: Dialect['reuse'], blockSize: number | undefined): string {
  switch (reuse.kind) {
    case 'none':
      return 'nothing';
    case 'prefix':
      if (reuse.unit === 1) return 'shared starts to the token';
      return `shared starts in blocks of ${blockSize ?? reuse.unit} tokens`;
    case 'checkpoint':
      return 'shared starts up to the end of a document, message or prompt';
    case 'slots':
      return 'one prompt a slot, and saved ones for one request each';
    case 'hosted':
      return `shared starts from ${reuse.least} tokens on, for a limited time`;
    case 'breakpoints':
      return `up to ${reuse.marks} marks, from ${reuse.least} tokens on, for a limited time`;
  }
}

function dialectOfFacts({ dialect, owner, cache }: EngineFacts): Dialect {
  const known = dialect ?? dialectOfOwner(owner) ?? dialectOf('generic');
  return withCheckpoints(known, cache.resumesAtCheckpoints === true);
}

function caching(facts: EngineFacts): Check {
  const name = 'prefix caching';
  const { promptTokens, cachedTokens, streamedCachedTokens } = facts.repeat;
  const cached = cachedTokens ?? streamedCachedTokens;
  if (cached !== undefined && cached > 0) {
    const of = promptTokens === undefined ? '' : ` of ${promptTokens}`;
    return { name, verdict: 'ok', finding: `on: ${cached}${of} tokens of a repeated prompt were cached` };
  }
  const advice = dialectOfFacts(facts).advice.caching ?? dialectOf('generic').advice.caching!;
  if (cached === undefined && facts.cache.isReused) return { name, verdict: 'ok', finding: 'on, as the engine says' };
  if (cached === 0) return { name, verdict: 'failed', finding: 'off: nothing of a repeated prompt was cached', advice };
  if (startsSooner(facts))
    return { name, verdict: 'ok', finding: 'on, by its effect: a repeated prompt starts much sooner' };
  return { name, verdict: 'failed', finding: 'not seen: neither counts nor times show a cache', advice };
}

function sharedPrefix({ half, repeat }: EngineFacts): Check {
  const name = 'shared prefix';
  if (half.cachedTokens === undefined) return { name, verdict: 'unknown', finding: 'not reported' };
  const finding = `${half.cachedTokens} of ${half.promptTokens ?? '?'} tokens cached when half of the words are shared`;
  if (half.cachedTokens > 0) return { name, verdict: 'ok', finding };
  if (!repeat.cachedTokens) return { name, verdict: 'unknown', finding };
  const advice = 'this engine reuses whole prompts only; arranging documents saves little on it';
  return { name, verdict: 'warning', finding, advice };
}

function blockSize({ blockSize, repeat }: EngineFacts): Check {
  const name = 'block size';
  if (blockSize !== undefined) {
    return { name, verdict: 'ok', finding: blockSize === 1 ? 'any token' : `about ${blockSize} tokens` };
  }
  if (!repeat.cachedTokens) return { name, verdict: 'unknown', finding: 'unknown without cached tokens' };
  const advice = 'documents shorter than a block save nothing; longer passages may help';
  return { name, verdict: 'warning', finding: 'larger than the range tried', advice };
}

function reporting(name: string, cachedTokens: number | undefined, facts: EngineFacts): Check {
  const { cachedTokens: field, advice: known } = dialectOfFacts(facts);
  if (cachedTokens !== undefined) return { name, verdict: 'ok', finding: 'reported' };
  const advice = known.report ?? dialectOf('generic').advice.report!;
  return { name, verdict: 'warning', finding: `not reported: no usage.${field}`, advice };
}

function ttft({ ttftMs }: EngineFacts): Check {
  const name = 'TTFT';
  const finding = `${ttftMs.cold.toFixed(1)} ms cold, ${ttftMs.warm.toFixed(1)} ms repeated`;
  if (ttftMs.warm < ttftMs.cold) return { name, verdict: 'ok', finding };
  return { name, verdict: 'warning', finding, advice: 'a repeated prompt does not start sooner; is the engine busy?' };
}

/** Of an embedded engine: the CPU code that it computes with. */
function libraries({ cpuVariant }: EngineFacts): Check[] {
  if (cpuVariant === undefined) return [];
  return [{ name: 'CPU code', verdict: 'ok', finding: cpuText({ cpuVariant }) }];
}

/** KV events name tokens. Without the tokens of chats, the gateway cannot tell which documents they are. */
function tokenize(facts: EngineFacts): Check {
  const { tokenizes } = facts;
  const { tokenizer } = dialectOfFacts(facts);
  const name = tokenizer ?? '/tokenize';
  if (tokenizes === 'chats') return { name, verdict: 'ok', finding: 'offered' };
  const finding =
    tokenizes === 'texts' ? 'offered for texts, not for chats with the text of each token' : 'not offered';
  if (tokenizer === undefined) return { name, verdict: 'unknown', finding };
  const advice =
    tokenizes === 'texts'
      ? 'without tokens of chats KV events are of no use: leave `upstream.kvEvents` out, or update the engine'
      : 'let it through to the engine, which has it: KV events are of no use without it';
  return { name, verdict: 'warning', finding, advice };
}

/** Of engines that say whether they publish KV events: whether the gateway follows them, or what to do for it. */
function events({ cache: { eventSources }, events: found }: EngineFacts): Check[] {
  const name = 'KV events';
  if (eventSources === undefined) return [];
  if (found === undefined) return [{ name, verdict: 'ok', finding: 'off', advice: EVENTS_OPTION }];
  const { source, isConnectable, isSupported } = found;
  const at = `published at ${source?.endpoint ?? eventSources[0]!.endpoint}`;
  const warning = (finding: string, advice: string): Check[] => [{ name, verdict: 'warning', finding, advice }];
  if (!isSupported) return warning(`${at}, not followed`, 'run npm install zeromq@6 where the gateway runs');
  if (!isConnectable) {
    const advice = 'let the gateway connect to this address, or write one that it reaches in `upstream.kvEvents`';
    return warning(`${at}, where nothing answers`, advice);
  }
  const replay = source!.replayEndpoint;
  if (replay === undefined) return warning(`${at}, without replays of lost ones`, EVENTS_OPTION);
  if (eventSources.length === 1) return [{ name, verdict: 'ok', finding: `${at}: the gateway follows them` }];
  const config = `{ endpoint: ${source!.endpoint}, replayEndpoint: ${replay}, ranks: ${eventSources.length} }`;
  return warning(`${at}, by ${eventSources.length} ranks`, `write upstream.kvEvents: ${config}`);
}

function startsSooner({ ttftMs }: EngineFacts): boolean {
  return ttftMs.warm < ttftMs.cold * CLEARLY_SOONER;
}

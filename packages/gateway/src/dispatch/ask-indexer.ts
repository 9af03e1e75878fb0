import { byteChain, WarmpathError } from '@warmpath/core';
import { arrangePrompt } from '../arrange/arrange-prompt.js';
import type { ArrangedPrompt } from '../arrange/arranged-prompt.js';
import { type Call, modelIn, type PreparedPrompt } from '../arrange/prepare-prompt.js';
import type { Engine } from '../engines/engine.js';
import { askText } from '../engines/engine-probe.js';
import type { Indexer, IndexerAnswer, IndexerTurn, TokenisedPrompt } from '../engines/indexer/indexer.js';
import { readPromptTokens } from '../engines/prompt-tokens.js';
import type { Gateway } from '../gateway.js';
import { BodyView } from '../intake/body-view.js';
import { Exchange } from '../observe/exchange.js';
import { documentTexts, tokensRequest } from './ask-tokens.js';

/** Longer prompts are routed without a question: their tokens take long to make, and to read. */
const MAX_BODY_BYTES = 262_144;
/** Bytes of an engine's answer: the tokens of such a body with their texts. */
const TOKENS_BYTES = 4_194_304;

/** What the gateway's own view says of a prompt. */
export interface RouteQuestion {
  readonly model: string;
  readonly cachedTokens: (engine: Engine) => number;
}

/** The part of a prompt, from 0 to 1, that an index says an engine holds at its beginning. */
export interface IndexedShares {
  /** `undefined` where nothing is said. */
  readonly of: (engine: Engine) => number | undefined;
  /** Whether an engine holds no more than that. */
  readonly isComplete: boolean;
}

/**
 * Asks an index of the engines' caches about a prompt before it is routed: in the order that the engine would get of
 * which the gateway believes that it holds most. Its answer enters the knowledge trees, so that the chosen engine gets
 * the order that it holds. `undefined` where there is no answer. Never rejects.
 */
export async function askIndexer(
  gateway: Gateway,
  indexer: Indexer,
  call: Call,
  prepared: PreparedPrompt,
  question: RouteQuestion | undefined,
): Promise<IndexedShares | undefined> {
  if (!isAskable(call)) return undefined;
  let turn = indexer.turn();
  if (turn === undefined) return undefined;
  try {
    const model = question?.model ?? modelIn(call);
    const candidates = gateway.engines.takers(() => model);
    const engine = believedBest(candidates, question);
    const prompt = arrangePrompt(gateway, engine, unnoted(call), prepared);
    const sent = new BodyView(gateway.cacheSalts?.salted(prompt.body, call.tenant) ?? prompt.body);
    const salt = sent.string('cache_salt');
    const tokens = indexer.takes(salt)
      ? await tokensOf(gateway, indexer, { engine, call, prompt, sent }, turn)
      : ('salted' as const);
    if (typeof tokens === 'string') {
      turn.end(tokens);
      turn = undefined;
      return undefined;
    }
    const asked = turn;
    turn = undefined;
    const answer = await indexer.ask({ tokens: tokens.tokens, model, salt }, candidates, asked);
    if (answer === undefined) return undefined;
    for (const each of candidates) tell(gateway, each, { call, prompt, tokens, answer });
    return {
      of: (engine) => {
        const held = answer.tokensOn(engine);
        return held === undefined ? undefined : held / answer.promptTokens;
      },
      isComplete: answer.isComplete,
    };
  } catch {
    // Bad input is refused, and a defect counted, where the order is decided.
    turn?.end('untokenised');
    return undefined;
  }
}

/** The same call, of which nothing that is decided is noted: its order is decided anew when an engine has room. */
function unnoted(call: Call): Call {
  const { requestId, arrivedAt, caller } = call.request.exchange;
  const exchange = new Exchange({ 'x-request-id': requestId }, arrivedAt);
  exchange.caller = caller;
  const request = Object.create(call.request, { exchange: { value: exchange } }) as Call['request'];
  return { ...call, request };
}

/** Whether a prompt can be asked about: an engine can say its tokens, and in no long time. */
function isAskable({ api, body }: Call): boolean {
  return (api.name === 'chat' || api.name === 'completions') && body.length <= MAX_BODY_BYTES;
}

function believedBest(engines: readonly Engine[], question: RouteQuestion | undefined): Engine {
  let best = engines[0]!;
  if (question === undefined) return best;
  let most = question.cachedTokens(best);
  for (const engine of engines.slice(1)) {
    const cached = question.cachedTokens(engine);
    if (cached > most) [best, most] = [engine, cached];
  }
  return best;
}

interface AskedPrompt {
  readonly engine: Engine;
  readonly call: Call;
  readonly prompt: ArrangedPrompt;
  readonly sent: BodyView;
}

/** The tokens of a prompt, as the engine says or said; or why there are none. */
async function tokensOf(
  gateway: Gateway,
  indexer: Indexer,
  { engine, call, prompt, sent }: AskedPrompt,
  turn: IndexerTurn,
): Promise<TokenisedPrompt | 'untokenised' | 'failed'> {
  const request = sent.bytes.length > MAX_BODY_BYTES ? undefined : tokensRequest(engine, call, sent);
  if (request === undefined) return 'untokenised';
  const texts = documentTexts(gateway, prompt);
  const [hash] = byteChain(request.body, [{ start: 0, end: request.body.length }]);
  const name = `${texts.length} ${hash}`;
  const known = indexer.tokensOf(call.tenant, name);
  if (known !== undefined) return known;
  const bounds = { totalMs: turn.leftMs(), limitBytes: TOKENS_BYTES };
  const answer = await askText(engine.upstream, request, bounds);
  // One that does not answer in time would cost every prompt that time.
  if (WarmpathError.isInstance(answer)) return 'failed';
  const tokens = answer.status === 200 ? readPromptTokens(Buffer.from(answer.text), texts) : undefined;
  if (tokens === undefined || tokens.tokens.length === 0) return 'untokenised';
  indexer.keepTokens(call.tenant, name, tokens);
  return tokens;
}

interface ToldPrompt {
  readonly call: Call;
  readonly prompt: ArrangedPrompt;
  readonly tokens: TokenisedPrompt;
  readonly answer: IndexerAnswer;
}

/** What an engine holds of the order that was asked about enters its tree. */
function tell(gateway: Gateway, engine: Engine, { call, prompt, tokens, answer }: ToldPrompt): void {
  const heldTokens = answer.tokensOn(engine);
  if (heldTokens === undefined || prompt.state === undefined) return;
  const { history } = gateway.histories.of(engine, call.tenant, prompt.state.model);
  const { isComplete, blockTokens } = answer;
  // The block behind what is held is missing.
  const missingFrom = isComplete && blockTokens !== undefined ? heldTokens + blockTokens : undefined;
  let { preambleEnd } = tokens;
  let place = 0;
  for (const arrangement of prompt.arrangements) {
    const documentEnds = tokens.documentEnds.slice(place, place + arrangement.documents.length);
    history.indexed(arrangement, { preambleEnd, documentEnds, heldTokens, missingFrom }, gateway.now());
    place += documentEnds.length;
    preambleEnd = documentEnds.at(-1) ?? preambleEnd;
  }
}

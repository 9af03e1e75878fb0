import type { TranslatedApi } from '@warmpath/translate';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { chatApi } from '../apis/prompt-apis.js';
import { hasMessages, type PromptApi } from '../apis/prompt-view.js';
import { translateRequest } from '../apis/translate-request.js';
import { answerInStages, type ServeCall, type StagedAnswerParts } from '../collections/answer-in-stages.js';
import { readRetrievalCall } from '../collections/retrieve-documents.js';
import type { GatewayConfig } from '../config/schema.js';
import { isLoopback } from '../config/schema-server.js';
import type { Engine } from '../engines/engine.js';
import type { ApiRoute } from '../engines/engine-apis.js';
import type { Engines } from '../engines/engines.js';
import { checkStoredState } from '../intake/admit.js';
import { endUserIn } from '../intake/parse-request.js';
import { bodyOf } from '../intake/request-body.js';
import { BodyView } from '../json/json-body.js';
import { type EventLoopBudget, whenReady } from '../limits/load.js';
import type { ContinuedRequest, StoredResponses } from '../memory/stored-responses.js';
import type { CapturedBodies } from '../observe/captured-bodies.js';
import type { PrefixKeeper } from '../prompt/keep-prefix.js';
import type { PromptParser } from '../prompt/parse-prompt.js';
import type { Call } from '../shapes/shapes.js';
import type { PromptDispatcher } from './dispatch-prompt.js';

export interface PromptServerParts {
  readonly config: GatewayConfig;
  readonly engines: Engines;
  readonly eventLoopBudget: EventLoopBudget;
  readonly prefixKeeper: PrefixKeeper;
  readonly responses: StoredResponses;
  readonly parser: PromptParser;
  readonly dispatcher: PromptDispatcher;
  readonly captures: CapturedBodies;
  /** Only where a folder of collections is configured. */
  readonly stagedAnswers: StagedAnswerParts | undefined;
  /** Whether bodies get a cache salt, so that all of them must be read. */
  readonly hasCacheSalts: boolean;
  /** The monotonic clock, in milliseconds. */
  readonly now: () => number;
}

type Handler = (request: FastifyRequest, reply: FastifyReply) => void;

/**
 * The steps of a prompt: receive, search where it asks for that, parse, wait, decide, render, send, report. Documents
 * are arranged when the engine has room and not before, so that the order knows what was served meanwhile, and what
 * still waits. A defect of the gateway forwards the original body; only bad input is refused.
 */
export class PromptServer {
  readonly #parts: PromptServerParts;

  constructor(parts: PromptServerParts) {
    this.#parts = parts;
  }

  /** For an API that every engine speaks. */
  handler(api: PromptApi): Handler {
    return (request, reply) => {
      this.#received(request);
      this.#answer(this.#callOf(request, reply, api, false), false, (call) => this.#serve(call));
    };
  }

  /**
   * For an API that the engine may not speak: then the request is translated first, and its answer on the way back.
   */
  translatingHandler(api: PromptApi & { readonly name: TranslatedApi }): Handler {
    return (request, reply) => {
      const { headers, report } = request;
      const go = (route: ApiRoute): void => {
        if (reply.raw.destroyed) return;
        this.#received(request);
        const isTranslated = route !== 'native';
        this.#answer(this.#callOf(request, reply, api, isTranslated), isTranslated, (call) =>
          isTranslated ? whenReady(this.#translated(call, api.name), (chat) => this.#serve(chat)) : this.#serve(call),
        );
      };
      const served = whenReady(this.#parts.engines.apiRoute(api.name, report.caller, headers), go);
      if (served instanceof Promise) served.catch((error: unknown) => refuseLate(reply, error));
    };
  }

  #received({ report }: FastifyRequest): void {
    report.bodyAt = this.#parts.now();
    report.trace?.stage('intake', report.arrivedAt, report.bodyAt);
  }

  /** @throws WarmpathError `WARMPATH_INVALID_JSON`, `WARMPATH_BODY_TOO_COMPLEX`: no body goes out without its salt. */
  #callOf(request: FastifyRequest, reply: FastifyReply, api: PromptApi, isTranslated: boolean): Call {
    const { tenant } = request.report.caller;
    request.report.tenant = tenant;
    const given = bodyOf(request);
    // A translation refers to nothing on the engine.
    if (!isTranslated) checkStoredState(this.#parts.config, given);
    const { captures } = this.#parts;
    if (captures.remaining > 0) captures.add({ id: request.report.requestId, path: api.path, body: given });
    const read = this.#parts.hasCacheSalts ? new BodyView(given).bytes : given;
    const { body, kept } = this.#parts.prefixKeeper.keep({ tenant, api, body: read });
    request.report.keptPrefix = kept;
    return { request, reply, tenant, route: api.name, api, body };
  }

  /** What the call asks for is looked for first. */
  #answer(call: Call, isTranslated: boolean, serve: ServeCall): void {
    const { stagedAnswers, config } = this.#parts;
    const read =
      stagedAnswers === undefined || !hasMessages(call.api)
        ? call
        : readRetrievalCall(config, stagedAnswers.collections, call);
    const answered = 'search' in read ? answerInStages(stagedAnswers!, read, { serve, isTranslated }) : serve(read);
    if (answered instanceof Promise) answered.catch((error: unknown) => refuseLate(call.reply, error));
  }

  #translated(call: Call, api: TranslatedApi): Call | Promise<Call> {
    const { eventLoopBudget, config } = this.#parts;
    const { report } = call.request;
    const continued = api === 'responses' ? this.#continued(call) : undefined;
    const options = {
      api,
      body: continued?.body ?? call.body,
      requestId: report.requestId,
      limitBytes: config.server.bodyLimitBytes,
      stored: continued?.stored,
      keepSystem: config.unchanged.includes('system-messages'),
    };
    const steps = translateRequest(options, continued?.store);
    return whenReady(
      eventLoopBudget.runSteps(steps, () => call.reply.raw.destroyed),
      (translation) => {
        report.translationWarnings = translation.warnings;
        if (translation.movedSystem > 0) report.keptPrefix = [...report.keptPrefix, 'system-messages'];
        return { ...call, api: chatApi, body: translation.body, translation };
      },
    );
  }

  /** The items of a stored response are part of the request. Responses are stored where all engines are local. */
  #continued({ body, tenant, request: { report } }: Call): ContinuedRequest | undefined {
    const { engines, responses } = this.#parts;
    if (!engines.all.every(isLocal)) return undefined;
    const { caller } = report;
    const view = new BodyView(body);
    const user = endUserIn(view, caller);
    if (user === undefined && !caller.bodyNamesEndUser) return undefined;
    return responses.continued(view, { tenant, user });
  }

  #serve(call: Call): void {
    const { parser, dispatcher } = this.#parts;
    const prompt = parser.parse(call);
    if (!(prompt instanceof Promise)) dispatcher.dispatch(call, prompt);
    else prompt.then((ready) => dispatcher.dispatch(call, ready)).catch((error: unknown) => call.reply.send(error));
  }
}

/** Whether an engine is of the operator: hosted APIs store responses themselves. */
function isLocal({ dialect, url }: Engine): boolean {
  return dialect.owners.length > 0 || (dialect.hosts.length === 0 && isLoopback(new URL(url).hostname));
}

function refuseLate(reply: Call['reply'], error: unknown): void {
  if (!reply.sent) reply.send(error);
}

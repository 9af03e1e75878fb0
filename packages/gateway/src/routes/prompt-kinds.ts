import { WarmpathError } from '@warmpath/core';
import { type ProgramText, type PromptKind, type PromptKinds, programParts } from '@warmpath/core/internal';
import type { ListedPromptKind, PromptKindList } from '@warmpath/dashboard';
import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { GatewayConfig } from '../config/schema.js';
import type { ServerConfig } from '../config/schema-server.js';
import { isOperator, listedTenant, requireOperatorOf } from '../intake/admit.js';
import { consentRequest, readFields } from '../intake/own-fields.js';
import { bodyOf } from '../intake/request-body.js';
import { invalid, readObject } from '../json/json-body.js';
import type { PromptConsents } from '../memory/prompt-consents.js';
import type { Log } from '../observe/log.js';
import { type GainEstimate, type KnownPrompts, PREVENTS_GAIN } from '../prompt/known-prompts.js';
import { NO_GAIN_REASONS } from '../shapes/shapes.js';

/** Characters of the program that say where something stands. */
const PLACE_LENGTH = 40;

export interface PromptKindsParts {
  readonly config: GatewayConfig;
  readonly server: ServerConfig;
  readonly knownPrompts: KnownPrompts;
  readonly kinds: PromptKinds;
  readonly consents: PromptConsents;
  readonly log: Log;
}

/**
 * `GET /v1/prompts`: the prompt kinds of the caller's tenant; for the operator, of all tenants or the one in
 * `?tenant=`. `POST /v1/prompts/{id}`: allows or refuses a kind, or asks again, for the operator only.
 *
 * `WARMPATH_FORBIDDEN` for everybody else. Where no keys are configured and this machine alone can ask, every caller
 * is the operator.
 */
export function promptKindsRoutes(app: FastifyInstance, parts: PromptKindsParts): void {
  const { server, kinds, consents, log } = parts;

  app.get<{ Querystring: { tenant?: unknown } }>('/v1/prompts', (request, reply) => {
    const { caller } = request.report;
    const mayChange = isOperator(server, caller);
    const data = tenantsOf(parts, request).flatMap((tenant) => kindsOf(parts, tenant));
    return reply
      .header('cache-control', 'no-store')
      .send({ object: 'list', data, mayChange, survivesRestart: consents.isStored } satisfies PromptKindList);
  });

  app.post<{ Params: { id: string }; Querystring: { tenant?: unknown } }>('/v1/prompts/:id', async (request, reply) => {
    requireOperatorOf(
      server,
      request.report.caller,
      'A consent changes the bytes of prompts, so it is for the operator',
    );
    const { state, labels: chosen } = readFields(consentRequest, readObject(bodyOf(request)), '');
    const { id } = request.params;
    const found = tenantsOf(parts, request).flatMap((tenant) => {
      const program = programOf(parts, tenant, id);
      return program === undefined ? [] : [{ tenant, program }];
    });
    const [one, ...others] = found;
    if (one === undefined) {
      const detail = 'There is no prompt kind of this id. GET /v1/prompts lists them.';
      throw new WarmpathError('WARMPATH_NOT_FOUND', { path: 'id', detail });
    }
    if (others.length > 0) throw invalid('tenant', 'several tenants have this kind: name one, as in ?tenant=acme');
    const known = kinds.list(one.tenant).find((each) => each.id === id);
    const labels = chosen ?? (known?.notices.includes('labels-by-position') ? 'mapped' : 'kept');
    if (state === 'asking') await consents.forget(one.tenant, id);
    else await consents.set({ ...one, state, labels });
    log.info({ kind: id, state, labels }, 'consent to a prompt kind');
    return reply.send(listed(parts, one.tenant, known ?? unseen(one.program)));
  });
}

/** The tenants whose kinds a caller may see, or the one of them that it named. */
function tenantsOf(
  { server, kinds, consents }: PromptKindsParts,
  { report, query }: FastifyRequest<{ Querystring: { tenant?: unknown } }>,
): readonly string[] {
  const tenant = listedTenant(server, report.caller, query.tenant);
  if (tenant !== undefined) return [tenant];
  return [...new Set([...kinds.tenants(), ...Array.from(consents.all(), (consent) => consent.tenant)])];
}

/** Kinds of a tenant: those that were learned, then those that only a consent names. */
function kindsOf(parts: PromptKindsParts, tenant: string): readonly ListedPromptKind[] {
  const learned = parts.kinds.list(tenant);
  const known = new Set(learned.map(({ id }) => id));
  const others = Array.from(parts.consents.all()).filter(
    (consent) => consent.tenant === tenant && !known.has(consent.program.id),
  );
  return [...learned, ...others.map(({ program }) => unseen(program))].map((kind) => listed(parts, tenant, kind));
}

function programOf({ kinds, consents }: PromptKindsParts, tenant: string, id: string): ProgramText | undefined {
  return kinds.programTexts(tenant).find((program) => program.id === id) ?? consents.of(tenant, id)?.program;
}

/** A kind of which this gateway saw no prompt yet. */
function unseen(program: ProgramText): PromptKind {
  const { id, role } = program;
  return { id, role, parts: programParts(program), prompts: 0, withDocuments: 0, notices: [], isSafe: false };
}

function listed(
  { config, consents, knownPrompts }: PromptKindsParts,
  tenant: string,
  { isSafe, ...kind }: PromptKind,
): ListedPromptKind {
  const unasked = config.recognise === 'auto' && isSafe ? 'automatic' : 'asking';
  const { state = unasked, labels = 'kept' } = consents.of(tenant, kind.id) ?? {};
  const estimate = knownPrompts.gainOf(tenant, kind.id);
  const gain = estimate === undefined ? null : gainOf(estimate, estimate.cachedIfAllowed);
  const gainIfMapped = estimate === undefined ? null : gainOf(estimate, estimate.cachedIfMapped);
  const open = kind.notices.filter((name) => name !== 'labels-by-position' || labels === 'kept');
  const notices = open.map((name) => ({
    name,
    preventsGain: PREVENTS_GAIN[name],
    message: name === 'changing-text-first' ? `${NO_GAIN_REASONS[name]}${placeOf(kind)}` : NO_GAIN_REASONS[name],
  }));
  return { object: 'prompt_kind', tenant, ...kind, notices, state, labels, gain, gainIfMapped };
}

/** Behind which words of the program the text that changes stands. */
function placeOf({ parts }: Pick<PromptKind, 'parts'>): string {
  const at = parts.findIndex(({ kind }) => kind === 'changing');
  const [before, behind] = [parts[at - 1], parts[at + 1]];
  if (before?.kind === 'text') return ` It stands behind "${oneLine(before.text).slice(-PLACE_LENGTH)}".`;
  return behind?.kind === 'text' ? ` It stands before "${oneLine(behind.text).slice(0, PLACE_LENGTH)}".` : '';
}

function oneLine(text: string): string {
  return text.trim().replace(/\s+/g, ' ');
}

function gainOf({ cachedTokens, promptTokens }: GainEstimate, cachedThen: number) {
  const tokens = Math.max(0, Math.round(cachedThen - cachedTokens));
  return { tokens, share: Math.round((1_000 * tokens) / promptTokens) / 1_000 };
}

import type { FastifyInstance, FastifyReply } from 'fastify';
import { z } from 'zod';
import type { SegmentedPrompt } from '../chat/segmented-prompt.js';
import type { EngineLoop } from '../loop/engine-loop.js';
import type { EngineMetrics } from './metrics.js';
import { chatPrompt, type PromptSource, plainPrompt, promptsOf, tokenizeOptions } from './prompts.js';
import { cacheSalt, chatPromptFields, checkModel, parseBody, segments } from './schemas.js';

/** The query of `GET /kv`: how many of the most used paths to list. */
const kvQuerySchema = z.strictObject({ paths: z.coerce.number().int().min(0).max(100).default(10) });

const TIERS = ['device', 'host', 'disk'] as const;

const flushSchema = z.strictObject({
  cache_salt: cacheSalt,
  tiers: z.array(z.enum(TIERS)).max(TIERS.length).nullish(),
});

/** A prompt as the two completions routes take it. */
const lookupSchema = z.object({
  model: z.string().nullish(),
  ...chatPromptFields,
  messages: chatPromptFields.messages.optional(),
  prompt: z.unknown().optional(),
  segments,
  cache_salt: cacheSalt,
});

type PromptFields = z.output<typeof lookupSchema>;

interface KvRoutes extends PromptSource {
  readonly model: string;
  readonly loop: EngineLoop;
  readonly metrics: EngineMetrics;
}

/** What operators and gateways ask of the cache: to show what it holds, to look a prompt up, to drop it. */
export function addKvRoutes(server: FastifyInstance, app: KvRoutes): void {
  const { loop, metrics } = app;
  server.get('/kv', (request) => kvReport(loop, metrics, parseBody(kvQuerySchema, request.query)));

  server.post('/kv/lookup', async (request, reply) => {
    const body = parseBody(lookupSchema, request.body);
    const { tokens } = await promptOf(app, body, reply);
    const byTier = loop.lookup(tokens, body.cache_salt ?? undefined);
    const cached = byTier.device + byTier.host + byTier.disk;
    return { prompt_tokens: tokens.length, cached_tokens: cached, cached_tokens_by_tier: byTier };
  });

  server.post('/kv/flush', async (request) => {
    const { cache_salt: salt, tiers } = parseBody(flushSchema, request.body ?? {});
    return { dropped_tokens: await loop.flush(tiers ?? TIERS, salt ?? undefined) };
  });
}

/** A prompt as one of the two completions routes would compute it. */
function promptOf(
  app: KvRoutes,
  { messages, prompt, segments, ...fields }: PromptFields,
  reply: FastifyReply,
): Promise<SegmentedPrompt> {
  checkModel(fields.model, app.model);
  const options = tokenizeOptions(app, reply);
  if (messages !== undefined) return chatPrompt(app, { ...fields, messages }, options);
  const [first, second] = promptsOf(prompt, 'prompt');
  const only = second === undefined ? first! : { value: prompt, path: 'prompt' };
  return plainPrompt(app, only, { segments }, options);
}

/** What `GET /kv` answers: counts and sizes of everything that the cache holds. */
function kvReport(loop: EngineLoop, metrics: EngineMetrics, query: z.output<typeof kvQuerySchema>): object {
  const { tiers, paths, ...shape } = loop.report(query.paths);
  const stats = loop.stats;
  const { cells, usedCells, cachedCells, freeSequences, leases, evictedTokens, host, disk } = stats;
  return {
    reuse: loop.reuse,
    cells: { total: cells, used: usedCells, cached: cachedCells },
    sequences: { free: freeSequences, running: leases },
    prompt_tokens: metrics.promptTokenCounts,
    tiers: {
      device: { ...tiers.device, evicted_tokens: evictedTokens },
      ...(host.capacityBytes > 0 && {
        host: {
          ...tiers.host,
          bytes: host.usedBytes,
          capacity_bytes: host.capacityBytes,
          saved_tokens: host.savedTokens,
          restored_tokens: host.restoredTokens,
          evicted_tokens: host.evictedTokens,
          failures: host.failures,
        },
      }),
      ...(disk !== undefined && {
        disk: {
          ...tiers.disk,
          files: disk.files,
          bytes: disk.usedBytes,
          capacity_bytes: disk.capacityBytes,
          saved_tokens: disk.savedTokens,
          loaded_tokens: disk.loadedTokens,
          evicted_tokens: disk.evictedTokens,
          failures: disk.failures,
        },
      }),
    },
    tree: shape,
    paths,
  };
}

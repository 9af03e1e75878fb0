import { availableParallelism, totalmem } from 'node:os';
import { WarmpathError } from '@warmpath/core';
import { REPLACEMENT_POLICY_NAMES } from '@warmpath/core/internal';
import { z } from 'zod';
import { TEMPLATE_DATE } from './chat/default-templates.js';
import { SEQUENCE_IDS } from './native/sequence-ids.js';
import { KV_TYPES, type KvType, TILE_ROWS } from './native/structs.js';

/**
 * All cores, at most 16: more share the same memory bandwidth. All threads wait for each other after every operation,
 * so a machine with other work needs fewer.
 */
function defaultThreads(): number {
  return Math.min(availableParallelism(), 16);
}

/** Bytes of the host tier by default. Memory is taken as documents leave the cells. */
export function defaultHostTierBytes(): number {
  const memory = process.constrainedMemory();
  // A process without a limit reads 0, or more than the machine has.
  return Math.min(Math.floor((memory > 0 ? Math.min(memory, totalmem()) : totalmem()) / 8), 1_073_741_824);
}

/**
 * As llama-server computes at once. Beside streams a step holds fewer (`STREAMING_TOKENS`).
 */
const DEFAULT_BATCH_TOKENS = 512;

const KV_TYPE_NAMES = Object.keys(KV_TYPES) as [KvType, ...KvType[]];

/** Set by programs that start an engine; no flag of a command line. */
const PROGRAMS_ONLY = { hasFlag: false } as const;

/** A number that a command line takes with a unit, too. */
const IN_BYTES = { unit: 'bytes' } as const;

const zmqEndpoint = () =>
  z
    .string()
    .regex(/^(?:tcp|ipc):\/\/./, { error: 'Expected an address like tcp://*:5557 or ipc:///path' })
    .optional();

/** The engine's configuration: validation, defaults and descriptions in one place. */
export const engineOptionsSchema = z.strictObject({
  model: z
    .string()
    .min(1)
    .optional()
    .describe(
      'Path or URL of a .gguf file, hf:org/repo:Q4_K_M, hf:org/repo/file.gguf, or demo; the demo model when left out',
    ),
  cacheDir: z.string().min(1).optional().describe('Folder for downloaded models'),
  host: z.string().min(1).default('127.0.0.1').describe('Address to listen on'),
  port: z.int().min(0).max(65_535).default(8080).describe('Port to listen on; 0 takes any free one'),
  contextTokens: z
    .int()
    .min(256)
    .max(4_194_304)
    .default(16_384)
    .describe('KV cells in all, shared by running requests and the prefix cache'),
  kvType: z
    .enum(KV_TYPE_NAMES)
    .default('f16')
    .describe('How keys and values stand in the cells: f16, or q8_0 in half the memory with slightly other answers'),
  hostTier: z
    .int()
    .min(0)
    .optional()
    .describe(
      'Host memory for what leaves the KV cells, from where it comes back by copy; 0 drops it; an eighth of the memory and at most 1GiB when left out',
    )
    .meta(IN_BYTES),
  diskTier: z
    .string()
    .min(1)
    .optional()
    .describe(
      'Folder for what leaves the host tier, of this engine alone; it survives a restart and holds what users sent',
    ),
  diskTierBytes: z
    .int()
    .min(1)
    .default(8_589_934_592)
    .describe('Most that all files of the disk tier take')
    .meta(IN_BYTES),
  policy: z
    .enum(REPLACEMENT_POLICY_NAMES)
    .default('pgdsf')
    .describe(`What leaves each tier first: ${REPLACEMENT_POLICY_NAMES.join(', ')}`),
  chatTemplate: z
    .string()
    .regex(/^chatml$|[{]/, { error: 'Expected chatml, or a template in Jinja; --chat-template-file reads one' })
    .optional()
    .describe("Chat template in place of the model's: chatml, or a text in Jinja"),
  chatTemplateFile: z.string().min(1).optional().describe('File of such a template'),
  templateDate: z.iso
    .date()
    .default(TEMPLATE_DATE)
    .describe('The day that chat templates take for today; constant, so that prompts stay cached'),
  kvEvents: zmqEndpoint().describe(
    'Publish what the cache holds, in the format of vLLM: tcp://*:5557 listens, an address without * is connected to',
  ),
  kvEventsReplay: zmqEndpoint().describe(
    'Where subscribers ask again for events they missed, for instance tcp://*:5558',
  ),
  kvEventsBlock: z.int().min(1).max(4096).default(16).describe('Tokens of a block in events'),
  cachedDocuments: z
    .int()
    .min(0)
    .optional()
    .describe('Most leading parts of a prompt to cache: the system prompt, then documents; all when left out'),
  batchInvariant: z
    .boolean()
    .default(false)
    .describe(
      'Compute a request in the same way whatever runs beside it, but for the order of sums; slower, where few tokens make up a step',
    ),
  threads: z.int().min(1).max(512).default(defaultThreads).describe('Threads for the computation'),
  gpuLayers: z
    .int()
    .min(0)
    .max(10_000)
    .default(0)
    .describe(
      'Layers of the model that a GPU computes, from the last on; more than it has for all. Needs a native package for CUDA, Vulkan or Metal',
    ),
  batchTokens: z
    .int()
    .min(32)
    .max(8192)
    .default(DEFAULT_BATCH_TOKENS)
    .describe(`Most tokens in one decode; ${TILE_ROWS} while clients read streams, which smaller keeps smoother`),
  maxRunning: z
    .int()
    .min(1)
    .max(Math.ceil(SEQUENCE_IDS.length / 2))
    .default(16)
    .describe('Most requests that are computed at the same time'),
  queueLimit: z.int().min(0).max(100_000).default(256).describe('Most requests that wait for a place'),
  defaultMaxTokens: z.int().min(1).default(1024).describe('Most tokens of an answer when the request names no limit'),
  bodyLimitBytes: z.int().min(1024).default(16_777_216).describe('Largest request body').meta(IN_BYTES),
  shutdownGraceMs: z
    .int()
    .min(0)
    .default(10_000)
    .describe('How long running requests may take to finish at shutdown, in milliseconds')
    .meta(PROGRAMS_ONLY),
  nativeLog: z.boolean().default(false).describe("Leave llama.cpp's own log on stderr"),
});

/** What a caller gives; everything has a default. */
export type EngineOptions = z.input<typeof engineOptionsSchema>;

/** Options with every default filled in. */
export type ResolvedEngineOptions = z.output<typeof engineOptionsSchema>;

/**
 * @throws WARMPATH_CONFIG_INVALID that names the first option that is wrong.
 */
export function parseEngineOptions(options: EngineOptions): ResolvedEngineOptions {
  const refuse = (path: string, detail: string) => new WarmpathError('WARMPATH_CONFIG_INVALID', { path, detail });
  const { data, error } = engineOptionsSchema.safeParse(options);
  if (error !== undefined) {
    const issue = error.issues[0]!;
    throw refuse(issue.path.join('.') || 'options', issue.message);
  }
  if (data.chatTemplate !== undefined && data.chatTemplateFile !== undefined) {
    throw refuse('chatTemplateFile', 'Only one of chatTemplate and chatTemplateFile can be used.');
  }
  if (data.kvEventsReplay !== undefined && data.kvEvents === undefined) {
    throw refuse('kvEventsReplay', 'There is nothing to replay without kvEvents.');
  }
  if (data.batchTokens < data.maxRunning) {
    throw refuse('batchTokens', `One decode must hold a token for each of the ${data.maxRunning} running requests.`);
  }
  if (data.batchInvariant && data.batchTokens < TILE_ROWS) {
    throw refuse('batchTokens', `With batchInvariant, every batch has at least ${TILE_ROWS} tokens.`);
  }
  if (data.diskTier !== undefined && data.hostTier === 0) {
    throw refuse('diskTier', 'What is on the disk comes back through host memory: set hostTier too.');
  }
  return data;
}

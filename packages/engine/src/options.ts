import { availableParallelism, totalmem } from 'node:os';
import { WarmpathError } from '@warmpath/core';
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

/** As llama-server computes at once. Beside streams a step holds fewer (`STREAMING_TOKENS`). */
const DEFAULT_BATCH_TOKENS = 512;

const KV_TYPE_NAMES = Object.keys(KV_TYPES) as [KvType, ...KvType[]];

/** A number that a command line takes with a unit, too. */
const IN_BYTES = { unit: 'bytes' } as const;

const zmqEndpoint = () =>
  z
    .string()
    .regex(/^(?:tcp|ipc):\/\/./, { error: 'Expected an address like tcp://*:5557 or ipc:///path' })
    .optional();

/** The engine's configuration: validation, defaults and descriptions in one place. */
export const engineOptionsSchema = z.strictObject({
  model: z.string().min(1).optional().describe('Path, URL, hf:org/repo[:Q4_K_M], hf:org/repo/file.gguf, or demo'),
  cacheDir: z.string().min(1).optional().describe('Folder for downloaded models'),
  host: z.string().min(1).default('127.0.0.1').describe('Address to listen on'),
  port: z.int().min(0).max(65_535).default(8080).describe('Port to listen on; 0 takes any free one'),
  contextTokens: z.int().min(256).max(4_194_304).default(16_384).describe('KV cells of requests and prefix cache'),
  kvType: z.enum(KV_TYPE_NAMES).default('f16').describe('Type of keys and values: q8_0 takes half the memory of f16'),
  hostTier: z
    .int()
    .min(0)
    .optional()
    .describe('Host memory for evicted KV; 0 for none; by default an eighth of the memory, at most 1GiB')
    .meta(IN_BYTES),
  diskTier: z
    .string()
    .min(1)
    .optional()
    .describe('Folder for KV of users, evicted from the host tier; survives restarts'),
  diskTierBytes: z.int().min(1).default(8_589_934_592).describe('Largest size of the disk tier').meta(IN_BYTES),
  chatTemplate: z
    .string()
    .regex(/^chatml$|[{]/, { error: 'Expected chatml, or a template in Jinja; --chat-template-file reads one' })
    .optional()
    .describe("Chat template in place of the model's: chatml, or a text in Jinja"),
  chatTemplateFile: z.string().min(1).optional().describe('File with a chat template in Jinja'),
  templateDate: z.iso.date().default(TEMPLATE_DATE).describe('Constant date for chat templates: prompts stay cached'),
  kvEvents: zmqEndpoint().describe('Publish KV events in the format of vLLM: tcp://*:5557 listens, others connect'),
  kvEventsReplay: zmqEndpoint().describe('Address for replays of missed KV events, for instance tcp://*:5558'),
  kvEventsBlock: z.int().min(1).max(4096).default(16).describe('Tokens of a block in KV events'),
  batchInvariant: z.boolean().default(false).describe('Compute a request alike whatever runs beside it; slower'),
  threads: z.int().min(1).max(512).default(defaultThreads).describe('Threads for the computation'),
  gpuLayers: z
    .int()
    .min(0)
    .max(10_000)
    .default(0)
    .describe('Layers on the GPU, the last ones first; needs a native package for CUDA, Vulkan or Metal'),
  batchTokens: z
    .int()
    .min(32)
    .max(8192)
    .default(DEFAULT_BATCH_TOKENS)
    .describe(`Most tokens in one decode; at most ${TILE_ROWS} while clients read streams`),
  maxRunning: z
    .int()
    .min(1)
    .max(Math.ceil(SEQUENCE_IDS.length / 2))
    .default(16)
    .describe('Most requests that are computed at the same time'),
  queueLimit: z.int().min(0).max(100_000).default(256).describe('Most requests that wait for a place'),
  defaultMaxTokens: z.int().min(1).default(1024).describe('Most tokens of an answer when the request names no limit'),
  bodyLimitBytes: z.int().min(1024).default(16_777_216).describe('Largest request body').meta(IN_BYTES),
  /** Programs alone set it. */
  shutdownGraceMs: z
    .int()
    .min(0)
    .default(10_000)
    .describe('Milliseconds for running requests to finish at shutdown')
    .meta({ hasFlag: false }),
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

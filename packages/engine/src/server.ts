import { readFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { WarmpathError } from '@warmpath/core';
import { ChatTemplate, type TemplateSources } from './chat/chat-template.js';
import { CHATML } from './chat/default-templates.js';
import { KvEventFeed } from './events/kv-event-log.js';
import type { ZmqKvEventPublisher } from './events/zmq-publisher.js';
import { createApp } from './http/app.js';
import { EmbeddingQueue } from './http/embeddings.js';
import { FormCache } from './http/form-cache.js';
import { largestBodyBytes } from './http/json-body.js';
import { EngineMetrics } from './http/metrics.js';
import { closeServer, closeStalled } from './http/slow-clients.js';
import { baseUrl, cannotListen } from './listen-address.js';
import type { DecodeInFlight } from './loop/decode-step.js';
import { EngineLoop } from './loop/engine-loop.js';
import type { EngineLoopOptions, LoopStats } from './loop/loop-options.js';
import type { ModelProgressListener } from './models/download.js';
import { modelFingerprint } from './models/fingerprint.js';
import { DEMO_NAME, type ResolvedModel, resolveModel } from './models/resolve.js';
import { llamaBindings } from './native/bindings.js';
import type { CpuVariant } from './native/cpu-variant.js';
import { EmbeddingContext } from './native/embedding-context.js';
import { findLibraryDirectory } from './native/library.js';
import { type EngineReuse, NativeModel } from './native/model.js';
import { defaultHostTierBytes, type EngineOptions, parseEngineOptions, type ResolvedEngineOptions } from './options.js';

const DEMO_NOTICE =
  'This is a tiny demonstration model: it answers simple questions from the documents it is given and is no general model.';

/** What accompanies a start and is no configuration. */
export interface EngineHooks {
  /** Gets the progress of downloads and other work on the model. */
  readonly onProgress?: ModelProgressListener;
  readonly signal?: AbortSignal;
}

/** What a front adds for its worker. */
export interface WorkerHooks extends EngineHooks {
  /** Unix domain socket or named pipe to listen on instead of host and port. */
  readonly socketPath?: string;
}

export interface ServedModel {
  /** Its name in `/v1/models` and in requests. */
  readonly name: string;
  readonly kind: ResolvedModel['kind'];
  /** What a user must know about this model before reading its text. */
  readonly notice?: string;
  readonly parameters: number;
  readonly architecture: string;
  /** Where what one request computed may serve another. */
  readonly reuse: EngineReuse;
  /** Left out for an encoder, which makes embeddings alone. */
  readonly template?: ServedTemplate;
  /** Most tokens of one request, prompt and answer. */
  readonly contextTokens: number;
  /** Largest body of a request: as configured, or less where no prompt that fits the context needs as much. */
  readonly bodyLimitBytes: number;
  /** The build of llama.cpp's CPU code that computes it. */
  readonly cpuVariant: CpuVariant;
}

interface ServedTemplate {
  /** The file's metadata, the options, or ChatML where there is neither. */
  readonly source: 'model' | 'options' | 'chatml';
  /** Why it cannot be used, if it cannot: then there are no chats, only completions. */
  readonly problem?: string;
  /** Whether it tells the model of tools; else a system message does. */
  readonly describesTools: boolean;
}

export interface EngineServer {
  /** Base URL, without a slash at its end. */
  readonly url: string;
  readonly model: ServedModel;
  readonly cells: number;
  /**
   * Settles when the engine has failed for good: it still listens and answers WARMPATH_ENGINE_FAILED to everything, and
   * only a new start helps. Stays pending otherwise.
   */
  readonly failed: Promise<WarmpathError>;
  stats(): LoopStats;
  decoding(): DecodeInFlight | undefined;
  /** Stops accepting, lets running requests finish within `shutdownGraceMs`, and frees everything. */
  close(): Promise<void>;
}

/**
 * Starts the embedded engine in this process: resolves and loads the model, starts the loop, listens.
 *
 * The native library is process-wide; a crash in it ends the process. Use `spawnEngine` where that matters.
 *
 * @throws WARMPATH_CONFIG_INVALID, WARMPATH_NATIVE_MISSING, WARMPATH_NATIVE_MISMATCH, WARMPATH_MODEL_FILE,
 *   WARMPATH_MODEL_SPEC, WARMPATH_MODEL_UNSUPPORTED, WARMPATH_DOWNLOAD_FAILED, WARMPATH_ENGINE_FAILED.
 */
export async function startEngineServer(options: EngineOptions, hooks: WorkerHooks = {}): Promise<EngineServer> {
  const settings = parseEngineOptions(options);
  findLibraryDirectory(settings); // Before a model is downloaded that nothing could compute.
  const resolved = await resolveModel(settings.model, {
    ...(settings.cacheDir !== undefined && { cacheDir: settings.cacheDir }),
    ...hooks,
  });
  const { nativeLog, gpuLayers } = settings;
  const bindings = llamaBindings({ nativeLog, gpuLayers, model: resolved.path });
  const model = await NativeModel.load(bindings, resolved.path, gpuLayers);
  let publisher: ZmqKvEventPublisher | undefined;
  try {
    publisher = await openKvEvents(settings);
    return await serve(settings, resolved, { model, publisher, socketPath: hooks.socketPath });
  } catch (error) {
    await publisher?.close();
    await model.free();
    throw error;
  }
}

interface Opened {
  readonly model: NativeModel;
  readonly publisher: ZmqKvEventPublisher | undefined;
  readonly socketPath: string | undefined;
}

async function serve(
  settings: ResolvedEngineOptions,
  resolved: ResolvedModel,
  { model, publisher, socketPath }: Opened,
): Promise<EngineServer> {
  // The demo model is known by what its file says, whatever the file is called.
  const isDemo = model.name === DEMO_NAME;
  const template = new ChatTemplate(await templateSources(settings, model), model.vocabulary);
  const metrics = new EngineMetrics(resolved.name);
  const loop = await EngineLoop.start({
    ...settings,
    bindings: llamaBindings(),
    model,
    name: resolved.name,
    cells: settings.contextTokens,
    // Only an explicit host tier is refused where nothing can be shared.
    hostTierBytes: settings.hostTier ?? (model.reuse === 'none' ? 0 : defaultHostTierBytes()),
    diskTier: await diskTierOf(resolved.path, settings),
    kvEvents: publisher && new KvEventFeed({ publisher, blockTokens: settings.kvEventsBlock, clock: Date.now }),
    observer: metrics,
  });
  const open = () => EmbeddingContext.create(llamaBindings(), model, settings.threads);
  const embeddings =
    model.poolingType > 0 ? new EmbeddingQueue({ open, queueLimit: settings.queueLimit, metrics }) : undefined;
  const stats = (): LoopStats => {
    const { running = 0, waiting = 0 } = embeddings?.counts ?? {};
    const own = loop.stats;
    return { ...own, running: own.running + running, waiting: own.waiting + waiting };
  };
  const forms = new FormCache();
  const grammars = () => ({ ...model.vocabulary.grammars.counts, bytes: forms.bytes });
  metrics.watch(() => ({ ...stats(), grammars: grammars(), events: publisher?.stats }), loop.reuse !== 'none');
  const bodyLimitBytes = Math.min(
    settings.bodyLimitBytes,
    largestBodyBytes(loop.contextTokens, model.vocabulary.longestPiece),
  );
  const app = createApp({
    model: resolved.name,
    isDemo,
    created: Math.floor(Date.now() / 1000),
    cpuVariant: llamaBindings().cpuVariant,
    loop,
    vocabulary: model.vocabulary,
    template,
    metrics,
    embeddings,
    forms,
    stats,
    defaultMaxTokens: settings.defaultMaxTokens,
    bodyLimitBytes,
  });
  try {
    const { host, port } = settings;
    if (socketPath === undefined) app.server.on('request', (request, response) => closeStalled(request, response));
    await app.listen(socketPath === undefined ? { host, port } : { path: socketPath });
  } catch (cause) {
    await loop.close(0);
    throw cannotListen(settings, cause);
  }
  let closing: Promise<void> | undefined;
  const close = async (): Promise<void> => {
    await loop.close(settings.shutdownGraceMs);
    await closeServer(app.server, () => app.close());
    await publisher?.close();
    await embeddings?.close();
    await model.free();
  };
  return {
    url: baseUrl(app.server.address()),
    model: {
      name: resolved.name,
      kind: isDemo ? 'demo' : resolved.kind,
      ...(isDemo && { notice: DEMO_NOTICE }),
      parameters: model.parameterCount,
      architecture: model.architecture,
      reuse: loop.reuse,
      ...(model.generatesText && { template: servedTemplate(settings, model, template) }),
      contextTokens: loop.contextTokens,
      bodyLimitBytes,
      cpuVariant: llamaBindings().cpuVariant,
    },
    cells: loop.stats.cells,
    failed: loop.failed,
    stats,
    decoding: () => loop.decoding,
    close: () => {
      closing ??= close();
      return closing;
    },
  };
}

function servedTemplate(
  { chatTemplate, chatTemplateFile }: ResolvedEngineOptions,
  model: NativeModel,
  { problem, describesTools }: ChatTemplate,
): ServedTemplate {
  const ofModel = (model.chatTemplate ?? model.toolUseTemplate) ? 'model' : 'chatml';
  const source = (chatTemplate ?? chatTemplateFile) ? 'options' : ofModel;
  return { source, ...(problem !== undefined && { problem }), describesTools };
}

/** @throws WARMPATH_CONFIG_INVALID when the template's file cannot be read. */
async function templateSources(
  { chatTemplate, chatTemplateFile, templateDate: date }: ResolvedEngineOptions,
  model: NativeModel,
): Promise<TemplateSources> {
  if (chatTemplateFile !== undefined) {
    try {
      return { source: await readFile(chatTemplateFile, 'utf8'), date };
    } catch (cause) {
      const detail = `The file cannot be read: ${(cause as Error).message}`;
      throw new WarmpathError('WARMPATH_CONFIG_INVALID', { path: 'chatTemplateFile', detail, cause });
    }
  }
  return chatTemplate === undefined
    ? { source: model.chatTemplate, toolUseSource: model.toolUseTemplate, date }
    : { source: chatTemplate === 'chatml' ? CHATML : chatTemplate, date };
}

/** Opens the sockets that the options name, and loads what they need. */
async function openKvEvents({
  kvEvents: endpoint,
  kvEventsReplay: replayEndpoint,
}: ResolvedEngineOptions): Promise<ZmqKvEventPublisher | undefined> {
  if (endpoint === undefined) return undefined;
  const { ZmqKvEventPublisher } = await import('./events/zmq-publisher.js');
  return ZmqKvEventPublisher.open({ endpoint, ...(replayEndpoint !== undefined && { replayEndpoint }) });
}

async function diskTierOf(
  model: string,
  { diskTier, diskTierBytes, cacheDir }: ResolvedEngineOptions,
): Promise<EngineLoopOptions['diskTier']> {
  return diskTier === undefined
    ? undefined
    : { directory: resolve(diskTier), capacityBytes: diskTierBytes, model: await modelFingerprint(model, cacheDir) };
}

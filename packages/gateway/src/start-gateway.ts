import { type AssembledGateway, assembleGateway, type GatewayParts } from './assemble-gateway.js';
import { resolveConfig } from './config/load.js';
import type { GatewayConfigInput } from './config/schema.js';
import type { EngineReport } from './engines/engine-probe.js';
import { logReport } from './observe/log.js';
import { type AdminServer, startAdminServer } from './operate/admin/admin-server.js';
import { type ReloadReport, reloadConfig } from './operate/reload-config.js';

/** Connections that wait to be accepted, up to the kernel's limit (`net.core.somaxconn`). The kernel drops others. */
const MAX_PENDING_CONNECTIONS = 16_384;

/** Milliseconds that answers in flight have to finish at shutdown. */
const DRAIN_MS = 30_000;

/** A gateway that listens. */
export interface RunningGateway {
  /** Where it listens, for instance `http://127.0.0.1:8080`. */
  readonly url: string;
  /**
   * Stops the gateway. `/readyz` fails for `server.drainDelayMs`. Then new requests are refused, and answers under way
   * end within 30 seconds or are cut. Resolves when every connection is closed. Can be called twice.
   */
  close(): Promise<void>;
  /**
   * Takes another configuration, as far as it can change while requests are under way. The report and the log name the
   * keys that need a restart. Engines that are not listed any more finish their requests.
   *
   * @throws WarmpathError for an invalid configuration. Nothing has changed then.
   */
  reload(input: GatewayConfigInput | Promise<GatewayConfigInput>): Promise<ReloadReport>;
}

/**
 * Starts a gateway in front of the engine at `config.upstream.url`, or the engines of `config.engines`.
 *
 * @throws WarmpathError `WARMPATH_CONFIG_…`; what `listen` throws if the port is taken.
 */
export async function startGateway(input: GatewayConfigInput, parts: GatewayParts = {}): Promise<RunningGateway> {
  const gateway = await assembleGateway(resolveConfig(input), parts);
  const { socket } = gateway.config.admin;
  let url: string;
  let admin: AdminServer | undefined;
  try {
    await openConversationStore(gateway);
    await gateway.consents.open();
    if (socket !== undefined) admin = await startAdminServer(socket, gateway);
    const { host, port } = gateway.config.server;
    url = await gateway.app.listen({ host, port, backlog: MAX_PENDING_CONNECTIONS });
  } catch (error) {
    await admin?.close();
    gateway.consents.close();
    await gateway.store.close();
    await gateway.collections?.close();
    await gateway.engines.close();
    throw error;
  }
  watchEngines(gateway, parts.onEngine);
  gateway.overload.start();
  gateway.trafficFile?.open();
  let reloading: Promise<unknown> = Promise.resolve();
  let closing: Promise<void> | undefined;
  return {
    url,
    reload: (input) => {
      const earlier = reloading;
      const reloaded = Promise.all([input, earlier]).then(([read]) => reloadConfig(gateway, resolveConfig(read)));
      const taken = () => gateway.metrics.reloaded('taken');
      const refused = () => gateway.metrics.reloaded('refused');
      // An unreadable configuration is refused at once; reloads end in their order.
      reloading = reloaded.then(taken, refused).then(() => earlier);
      return reloaded;
    },
    close: () => {
      closing ??= shutDown(gateway, { admin, drainMs: parts.drainMs ?? DRAIN_MS });
      return closing;
    },
  };
}

/** Probes the engines and logs the results. */
function watchEngines(
  { engines, log }: AssembledGateway,
  onReport: ((report: EngineReport) => void) | undefined,
): void {
  engines.watch(
    onReport &&
      ((report) => {
        logReport(log, report);
        onReport(report);
      }),
  );
}

/** Opens the store of conversations. Its operations enter the metrics, and its state the log. */
async function openConversationStore({ store, peers, metrics, log }: AssembledGateway): Promise<void> {
  await store.open({
    done: (operation, ms) => metrics.stored(operation, ms),
    failed: (operation, failure) => metrics.notStored(operation, failure),
    changed: (isUp, reason) => {
      if (isUp) log.info({ reason }, 'session store up');
      else log.warn({ reason }, 'session store down');
    },
  });
  peers?.open();
}

async function shutDown(
  gateway: AssembledGateway,
  { admin, drainMs }: { readonly admin: AdminServer | undefined; readonly drainMs: number },
): Promise<void> {
  gateway.lifecycle.leaving = true;
  const { drainDelayMs } = gateway.config.server;
  // A load balancer must see `/readyz` fail while this gateway still answers.
  if (drainDelayMs > 0) await new Promise((resolve) => setTimeout(resolve, drainDelayMs));
  gateway.lifecycle.draining = true;
  gateway.overload.close();
  gateway.warmups.close();
  gateway.peers?.close();
  for (const engine of gateway.engines.all) engine.rest();
  gateway.feed.endAll();
  const deadline = setTimeout(() => gateway.app.server.closeAllConnections(), drainMs);
  await gateway.app.close();
  gateway.trafficFile?.close();
  clearTimeout(deadline);
  await admin?.close();
  gateway.consents.close();
  await gateway.store.close();
  await gateway.collections?.close();
  await gateway.engines.close();
}

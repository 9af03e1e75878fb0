import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import type { Arranger } from '@warmpath/client';
import { registerArrange } from './arrange-tool.js';
import type { Corpus } from './corpus.js';
import { registerExplain } from './explain-tool.js';
import { registerSearch } from './search-tool.js';

export interface McpServerOptions {
  /** Decides on orders: `LocalWarmpath`, or the client of a gateway. */
  readonly arranger: Arranger;
  /** Documents to search; without them there is no tool `search`. */
  readonly corpus?: Corpus | undefined;
}

/** A server with Warmpath's tools, to be connected to a transport. Cheap: the state is the arranger's. */
export function createMcpServer({ arranger, corpus }: McpServerOptions): McpServer {
  const server = new McpServer({ name: 'warmpath', version: '0.1.0' });
  registerArrange(server, arranger);
  if (corpus !== undefined) registerSearch(server, arranger, corpus);
  registerExplain(server);
  return server;
}

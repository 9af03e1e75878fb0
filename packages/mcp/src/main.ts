import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { StdioServerTransport } from '@modelcontextprotocol/sdk/server/stdio.js';
import { LocalWarmpath, Warmpath } from '@warmpath/client';
import { WarmpathError } from '@warmpath/core';
import { printableLine } from '@warmpath/core/internal';
import { readCorpus } from './corpus.js';
import { startMcpHttp } from './http.js';
import { createMcpServer } from './mcp-server.js';

const USAGE = `Usage: warmpath-mcp [options]

Warmpath's tools for MCP clients, over stdin and stdout unless --http is given.

  --gateway <url>      let this gateway decide on orders (key: WARMPATH_API_KEY); without it, orders are
                       decided here, by what this process has arranged
  --documents <file>   documents to search, JSON lines of {"id", "title", "content"}; adds the tool search
  --http               serve streamable HTTP instead, at /mcp
  --host <address>     address to listen on (default 127.0.0.1)
  --port <number>      port to listen on (default 8090; 0 for any free one)
  --help               this text
`;

const OPTIONS = {
  gateway: { type: 'string' },
  documents: { type: 'string' },
  http: { type: 'boolean' },
  host: { type: 'string' },
  port: { type: 'string' },
  help: { type: 'boolean' },
} as const;

async function main(): Promise<void> {
  const { gateway, documents, http, host, port, help } = readOptions();
  if (help) {
    process.stdout.write(USAGE);
    return;
  }
  const { WARMPATH_API_KEY: apiKey } = process.env;
  const arranger =
    gateway === undefined
      ? new LocalWarmpath()
      : new Warmpath({ baseURL: gateway, ...(apiKey !== undefined && { apiKey }) });
  const options = { arranger, corpus: documents === undefined ? undefined : await readCorpus(documents) };
  if (http) {
    const running = await startMcpHttp({
      ...options,
      ...(host !== undefined && { host }),
      ...(port !== undefined && { port: readPort(port) }),
    });
    // Caught before anybody hears of the URL: whoever does may ask the server to stop at once.
    const stopped = Promise.race([once(process, 'SIGINT'), once(process, 'SIGTERM')]);
    process.stdout.write(`${running.url}\n`);
    await stopped;
    await running.close();
    return;
  }
  await createMcpServer(options).connect(new StdioServerTransport());
}

function readOptions() {
  try {
    return parseArgs({ options: OPTIONS }).values;
  } catch (cause) {
    throw new WarmpathError('WARMPATH_USAGE', { detail: (cause as Error).message, cause });
  }
}

function readPort(text: string): number {
  const port = Number(text);
  if (/^\d+$/.test(text) && port <= 65_535) return port;
  throw new WarmpathError('WARMPATH_USAGE', { path: '--port', detail: 'A port number from 0 to 65535 was expected.' });
}

main().catch((error: unknown) => {
  const isUsage = WarmpathError.isInstance(error) && error.code === 'WARMPATH_USAGE';
  const message = printableLine(error instanceof Error ? error.message : String(error));
  process.stderr.write(`warmpath-mcp: ${message}\n${isUsage ? USAGE : ''}`);
  process.exitCode = isUsage ? 2 : 1;
});

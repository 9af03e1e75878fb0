export { Corpus, type CorpusDocument, readCorpus } from './corpus.js';
export { type McpHttpOptions, type RunningMcp, startMcpHttp } from './http.js';
export { createMcpServer, type McpServerOptions } from './mcp-server.js';

import { defineConfig } from 'vitepress';

const list = (folder, ...entries) => entries.map(([text, page]) => ({ text, link: `/${folder}${page}` }));

const SIDEBAR = [
  {
    text: 'Start',
    items: list('', ['Install', 'install'], ['How it works', 'how-it-works'], ['Will it help me?', 'will-it-help']),
  },
  {
    text: 'Put it before',
    items: list(
      'engines/',
      ['vLLM', 'vllm'],
      ['SGLang', 'sglang'],
      ['llama-server', 'llama-server'],
      ['A hosted API', 'hosted'],
      ['Kinds of engines', 'kinds'],
    ),
  },
  {
    text: 'Use it from',
    items: list(
      'integrations/',
      ['LangChain.js', 'langchain'],
      ['AI SDK', 'ai-sdk'],
      ['LlamaIndex.TS', 'llamaindex'],
      ['Mastra', 'mastra'],
      ['MCP', 'mcp'],
      ['Python and others', 'python'],
      ['Claude Code', 'claude-code'],
      ['TypeScript client', 'client'],
    ),
  },
  {
    text: 'Requests',
    items: list(
      'guide/',
      ['Ask your own documents', 'ask-your-documents'],
      ['Send documents', 'requests'],
      ['Conversations', 'conversations'],
      ['Documents in prompts', 'documents-in-prompts'],
      ['Messages and Responses', 'other-apis'],
      ['The order alone', 'order-alone'],
      ['Order a batch', 'plan'],
      ['Prefill early', 'prefill'],
      ['Explain a request', 'explain'],
    ),
  },
  {
    text: 'Operate',
    items: [
      ...list(
        'operate/',
        ['Run it', 'run'],
        ['Secure it', 'secure'],
        ['Dashboard', 'dashboard'],
        ['Monitor it', 'monitor'],
      ),
      ...list('guide/', ['Check an engine', 'doctor'], ['Let prompts wait', 'queue']),
      ...list(
        'operate/',
        ['Several engines', 'several-engines'],
        ['Several gateways', 'several-gateways'],
        ['Export and forget', 'sessions'],
        ['Memory', 'memory'],
        ['Overload', 'overload'],
        ['Troubleshoot', 'troubleshoot'],
      ),
    ],
  },
  {
    text: 'Library',
    collapsed: true,
    items: list(
      'library/',
      ['Overview', ''],
      ['Conversations', 'conversations'],
      ['Ordering policies', 'ordering-policies'],
      ['Recognise documents', 'documents-in-prompts'],
      ['Residency', 'residency'],
      ['Plan a batch', 'plan'],
      ['Parts for an engine', 'engine-parts'],
    ),
  },
  {
    text: 'Embedded engine',
    collapsed: true,
    items: list(
      'embedded-engine/',
      ['Overview', ''],
      ['Endpoints', 'endpoints'],
      ['Prefix cache and tiers', 'cache'],
      ['Scheduling and streams', 'scheduling'],
      ['KV events', 'kv-events'],
      ['Failures', 'crashes'],
      ['Native library', 'native-library'],
    ),
  },
  {
    text: 'Lab',
    collapsed: true,
    items: list(
      'lab/',
      ['Overview', ''],
      ['Simulate', 'run'],
      ['Replay a log', 'replay'],
      ['Evaluate answers', 'evaluate'],
      ['Profile an engine', 'profile'],
      ['Workloads', 'workloads'],
      ['Data', 'data'],
      ['Caches', 'caches'],
      ['Server', 'server'],
      ['Answer quality', 'answers'],
      ['Reports', 'reports'],
    ),
  },
  {
    text: 'Reference',
    items: list(
      'reference/',
      ['Configuration', 'configuration'],
      ['HTTP', 'http'],
      ['Response headers', 'headers'],
      ['Metrics', 'metrics'],
      ['Errors', 'errors'],
      ['Command line', 'cli'],
      ['@warmpath/core', 'core'],
      ['@warmpath/client', 'client'],
    ),
  },
  {
    text: 'More',
    items: list(
      '',
      ['Packages', 'packages'],
      ['Limits', 'limits'],
      ['Compare', 'compare'],
      ['Benchmarks', 'benchmarks'],
      ['Glossary', 'glossary'],
    ),
  },
  {
    text: 'Research',
    collapsed: true,
    items: list(
      'research/',
      ['foresight', 'foresight'],
      ['Speculation', 'speculation'],
      ['How far from the best order', 'offline-bracket'],
      ['Search and ingestion', 'retrieval'],
      ['Order and replica together', 'fleet'],
      ['Reuse at other places', 'non-prefix-reuse'],
      ['The papers side by side', 'papers'],
      ['RAGCache', 'ragcache'],
      ['The gateway under other loads', 'gateway-loads'],
      ['Time of arranging', 'core-benchmark'],
      ['Beside llama-server', 'llama-server'],
      ['What the host tier saves', 'host-tier'],
      ['What a conversation saves', 'conversation-savings'],
      ['The demo', 'demo'],
    ),
  },
];

// biome-ignore lint/style/noDefaultExport: VitePress reads the default export.
export default defineConfig({
  title: 'Warmpath',
  description: 'Start every RAG prompt with what the LLM engine already holds.',
  lang: 'en',
  cleanUrls: true,
  outDir: './dist',
  cacheDir: './.cache',
  srcExclude: ['package.json'],
  head: [['link', { rel: 'icon', href: 'data:,' }]],
  // Search holds all pages in one file.
  vite: { build: { chunkSizeWarningLimit: 4_000 } },
  // Nothing is asked of other servers, neither when the site is built nor when it is read.
  themeConfig: {
    search: { provider: 'local' },
    outline: { level: [2, 3] },
    sidebar: SIDEBAR,
    nav: [
      { text: 'Install', link: '/install' },
      { text: 'Reference', link: '/reference/configuration' },
      { text: 'Compare', link: '/compare' },
    ],
  },
});

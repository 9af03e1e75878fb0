import { defineConfig } from 'vitepress';

const list = (folder, ...entries) => entries.map(([text, page]) => ({ text, link: `/${folder}${page}` }));

const SIDEBAR = [
  {
    text: 'Start',
    items: list(
      '',
      ['Install', 'install'],
      ['How it works', 'how-it-works'],
      ['Will it help me?', 'will-it-help'],
      ['A model of your own', 'embedded-engine/models'],
    ),
  },
  {
    text: 'Put it before',
    items: list(
      'engines/',
      ['vLLM', 'vllm'],
      ['SGLang', 'sglang'],
      ['llama-server', 'llama-server'],
      ['A hosted API', 'hosted'],
    ),
  },
  {
    text: 'Use it from',
    items: list(
      'integrations/',
      ['My application', ''],
      ['LangChain.js', 'langchain'],
      ['AI SDK', 'ai-sdk'],
      ['Python and others', 'python'],
      ['Coding agents', 'claude-code'],
    ),
  },
  {
    text: 'Requests',
    items: list(
      'guide/',
      ['Chat with your documents', 'ask-your-documents'],
      ['Send documents', 'requests'],
      ['Conversations', 'conversations'],
      ['Documents in prompts', 'documents-in-prompts'],
      ['Messages and Responses', 'other-apis'],
      ['Explain a request', 'explain'],
    ),
  },
  {
    text: 'Operate',
    items: [
      ...list(
        'operate/',
        ['Run it', 'run'],
        ['Upgrade', 'upgrade'],
        ['Secure it', 'secure'],
        ['Monitor it', 'monitor'],
      ),
      ...list('guide/', ['Check an engine', 'doctor'], ['Queue and prefill', 'queue']),
      ...list(
        'operate/',
        ['Several engines', 'several-engines'],
        ['Several gateways', 'several-gateways'],
        ['Troubleshoot', 'troubleshoot'],
      ),
    ],
  },
  {
    text: 'Parts',
    items: list('', ['Library', 'library/'], ['Embedded engine', 'embedded-engine/'], ['Lab', 'lab/']),
  },
  {
    text: 'Reference',
    items: list(
      'reference/',
      ['Configuration', 'configuration'],
      ['HTTP', 'http'],
      ['Errors', 'errors'],
      ['Command line', 'cli'],
      ['@warmpath/core', 'core'],
    ),
  },
  {
    text: 'More',
    items: list(
      '',
      ['Limits', 'limits'],
      ['Benchmarks', 'benchmarks'],
      ['Research', 'research/'],
      ['Glossary', 'glossary'],
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

import { WarmpathError } from '@warmpath/core';

/** Coding agents that can be wrapped, and how each is installed. */
export const CODING_AGENTS = {
  claude: { install: 'npm install -g @anthropic-ai/claude-code', launch: launchClaude },
  codex: { install: 'npm install -g @openai/codex', launch: launchCodex },
  opencode: { install: 'npm install -g opencode-ai', launch: launchOpenCode },
} as const satisfies Readonly<Record<string, { readonly install: string; readonly launch: Launcher }>>;

export type CodingAgent = keyof typeof CODING_AGENTS;
export const AGENT_NAMES = Object.keys(CODING_AGENTS) as readonly CodingAgent[];

/** What an agent is to talk to. */
export interface AgentTarget {
  /** The gateway, without `/v1`. */
  readonly url: string;
  /** Sent to the gateway; `undefined` where the agent sends credentials of its own. */
  readonly key: string | undefined;
  /** In place of the models that the agent asks for; `undefined`: its own choice. */
  readonly model: string | undefined;
}

/** The process of an agent: settings that hold for it alone. */
export interface AgentLaunch {
  readonly args: readonly string[];
  readonly environment: NodeJS.ProcessEnv;
}

type Launcher = (target: AgentTarget, args: readonly string[], environment: NodeJS.ProcessEnv) => AgentLaunch;

/** The command line and the environment of an agent that talks to `target`. Error: `WARMPATH_USAGE`. */
export function launchOf(
  agent: CodingAgent,
  target: AgentTarget,
  args: readonly string[],
  environment: NodeJS.ProcessEnv,
): AgentLaunch {
  return CODING_AGENTS[agent].launch(target, args, environment);
}

/** Variables that name the model of each task and each size of model. */
const CLAUDE_MODELS = [
  'ANTHROPIC_MODEL',
  'ANTHROPIC_SMALL_FAST_MODEL',
  'ANTHROPIC_DEFAULT_FABLE_MODEL',
  'ANTHROPIC_DEFAULT_HAIKU_MODEL',
  'ANTHROPIC_DEFAULT_OPUS_MODEL',
  'ANTHROPIC_DEFAULT_SONNET_MODEL',
  'CLAUDE_CODE_SUBAGENT_MODEL',
] as const;

function launchClaude(
  { url, key, model }: AgentTarget,
  args: readonly string[],
  environment: NodeJS.ProcessEnv,
): AgentLaunch {
  const settings: NodeJS.ProcessEnv = { ...environment, ANTHROPIC_BASE_URL: url };
  // Clouds go before the base URL.
  for (const name of ['CLAUDE_CODE_USE_BEDROCK', 'CLAUDE_CODE_USE_VERTEX']) delete settings[name];
  if (key !== undefined) {
    // A key of Anthropic's is no business of another engine.
    delete settings['ANTHROPIC_API_KEY'];
    settings['ANTHROPIC_AUTH_TOKEN'] = key;
  }
  if (model !== undefined) for (const name of CLAUDE_MODELS) settings[name] = model;
  return { args, environment: settings };
}

/** The variable from which Codex takes the key; it accepts no key on its command line. */
const CODEX_KEY = 'WARMPATH_AGENT_KEY';

function launchCodex(
  { url, key, model }: AgentTarget,
  args: readonly string[],
  environment: NodeJS.ProcessEnv,
): AgentLaunch {
  const credentials = key === undefined ? 'requires_openai_auth=true' : `env_key="${CODEX_KEY}"`;
  const provider = `{name="Warmpath",base_url=${JSON.stringify(`${url}/v1`)},wire_api="responses",${credentials}}`;
  const settings = [`model_providers.warmpath=${provider}`, 'model_provider="warmpath"'];
  if (model !== undefined) settings.push(`model=${JSON.stringify(model)}`);
  return {
    args: [...settings.flatMap((setting) => ['-c', setting]), ...args],
    environment: { ...environment, ...(key !== undefined && { [CODEX_KEY]: key }) },
  };
}

/** Configuration that OpenCode reads on top of its files. */
const OPENCODE_CONFIG = 'OPENCODE_CONFIG_CONTENT';

function launchOpenCode(
  { url, key, model }: AgentTarget,
  args: readonly string[],
  environment: NodeJS.ProcessEnv,
): AgentLaunch {
  if (key === undefined) {
    const detail = 'the engine wants a key, and OpenCode has none for this gateway; name its variable with --key-env';
    throw new WarmpathError('WARMPATH_USAGE', { path: '--key-env', detail });
  }
  if (model === undefined) {
    throw new WarmpathError('WARMPATH_USAGE', {
      path: '--model',
      detail: 'OpenCode needs the name of a model, and the engine names none or several; name one with --model',
    });
  }
  const own = ownOpenCodeConfig(environment[OPENCODE_CONFIG]);
  const provider = {
    npm: '@ai-sdk/openai-compatible',
    name: 'Warmpath',
    options: { baseURL: `${url}/v1`, apiKey: key },
    models: { [model]: { name: model } },
  };
  const named = `warmpath/${model}`;
  const config = {
    ...own,
    model: named,
    small_model: named,
    provider: { ...(own['provider'] as object | undefined), warmpath: provider },
  };
  return { args, environment: { ...environment, [OPENCODE_CONFIG]: JSON.stringify(config) } };
}

function ownOpenCodeConfig(text: string | undefined): Readonly<Record<string, unknown>> {
  if (!text) return {};
  try {
    return JSON.parse(text) as Readonly<Record<string, unknown>>;
  } catch (cause) {
    throw new WarmpathError('WARMPATH_USAGE', { path: OPENCODE_CONFIG, detail: 'the variable holds no JSON', cause });
  }
}

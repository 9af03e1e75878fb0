import { type Stand, type StandConfig, send, stand } from './harness.js';

const LONG = 'Read before you write, and say what you did. '.repeat(100);

/** One prompt of the session: what its rules begin with, and tokens of it and of it in the cache. */
export interface SessionTurn {
  readonly rules: string;
  readonly prompt: number;
  readonly cached: number;
}

/** Two prompts, of which the second has other rules. */
export const LOST_SESSION: readonly SessionTurn[] = [
  { rules: 'First rules.', prompt: 12_000, cached: 0 },
  { rules: 'Other rules.', prompt: 12_500, cached: 500 },
];

/** A gateway, and a client that sends the next prompt of a session of OpenCode. */
export async function standWithSession(
  config: StandConfig = {},
): Promise<Stand & { ask(turn: SessionTurn, headers?: Readonly<Record<string, string>>): Promise<void> }> {
  let turn = LOST_SESSION[0]!;
  const stood = await stand((response) => {
    const usage = { prompt_tokens: turn.prompt, prompt_tokens_details: { cached_tokens: turn.cached } };
    const choices = [{ index: 0, message: { role: 'assistant', content: 'Done.' } }];
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ choices, usage }));
  }, config);
  const ask = async (next: SessionTurn, headers: Readonly<Record<string, string>> = {}): Promise<void> => {
    turn = next;
    const messages = [
      { role: 'system', content: `${turn.rules} ${LONG}` },
      { role: 'user', content: 'Mend it.' },
    ];
    const sent = { 'x-session-id': 'ses_a', ...headers };
    await send(`${stood.gateway.url}/v1/chat/completions`, { model: 'coder', messages }, { headers: sent });
  };
  return { ...stood, ask };
}

import { AGENT_HEADERS, SUMMARY_FIELDS } from '@warmpath/gateway';
import { code, page, table } from './markdown.js';

/** The headers that the gateway adds to answers, and the keys of `x-warmpath`. */
export function headersPage() {
  const rows = Object.entries(SUMMARY_FIELDS).map(([key, [on, meaning]]) => [code(key), on, meaning]);
  const named = AGENT_HEADERS.map(({ client, version, session, agent, parent }) => [
    version === undefined ? client : `${client} ${version}`,
    code(session),
    agent === undefined ? '' : code(agent),
    parent === undefined ? '' : code(parent),
  ]);
  return page('Headers', "Status, headers and body of an answer are the engine's. The gateway adds two headers.", [
    table(
      ['header', 'meaning'],
      [
        [
          code('x-request-id'),
          'On every answer. The one that the client sent, if it is a plain token of at most 128 characters; otherwise a new one. The engine gets it too. On `/v1/messages` it also stands in `request-id`.',
        ],
        [
          code('x-warmpath'),
          'What the gateway did with the request: a dictionary of structured fields (RFC 9651) with the keys below. A key that has nothing to say is left out.',
        ],
      ],
    ),
    'For example: `x-warmpath: overhead=0.412, policy=foresight, documents=20, moved=7, predicted=3012`. `readSummary` of [`@warmpath/client`](../integrations/client.md) reads it.',
    '## Keys of x-warmpath',
    table(['key', 'on', 'meaning'], rows),
    '## Request headers that name a session',
    'The first one in this table counts. Tenant, end user, header and id together name the session, and each agent in it is a session of its own. An id beyond 128 characters counts as its digest. `x-warmpath-session` goes before all. The headers go on to the engine.',
    table(['client', 'session', 'agent', 'started by'], named),
  ]);
}

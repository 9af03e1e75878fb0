import { SUMMARY_FIELDS } from '@warmpath/gateway';
import { code, page, table } from './markdown.js';

/** The headers that the gateway adds to answers, and the keys of `x-warmpath`. */
export function headersPage() {
  const rows = Object.entries(SUMMARY_FIELDS).map(([key, [on, meaning]]) => [code(key), on, meaning]);
  return page(
    'Response headers',
    "Status, headers and body of an answer are the engine's. The gateway adds two headers.",
    [
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
    ],
  );
}

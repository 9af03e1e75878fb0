import { ERROR_TABLE } from '@warmpath/core/internal';
import { code, page, table } from './markdown.js';

/** The one error table. */
export function errorsPage() {
  const rows = Object.entries(ERROR_TABLE).map(([name, { status, message, remedy }]) => {
    return [code(name), status, `${message} ${remedy}`];
  });
  return page(
    'Error codes',
    'Every error that Warmpath raises on purpose has a code from this table. A code never changes its meaning: match on the code, not on the message. Over HTTP the body is `{"error": {"message", "type", "param", "code", "remedy"}}`, where `param` is the path into the request. Warnings have the same codes and paths.',
    [table(['code', 'status', 'what is wrong, and what to do'], rows)],
  );
}

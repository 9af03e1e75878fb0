import { WarmpathError } from '@warmpath/core';

/**
 * An error as clients read it. One about files of the server has the table's words only: its details name folders of
 * the server, and are for the log.
 */
export function clientError(error: WarmpathError): WarmpathError {
  const isOfFiles = error.type === 'configuration_error' || error.code.startsWith('WARMPATH_COLLECTION_');
  return error.status === 500 && isOfFiles ? new WarmpathError(error.code, { cause: error }) : error;
}

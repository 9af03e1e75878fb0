import { WarmpathError } from '@warmpath/core';

/**
 * An error as clients read it. One about files of the server has the table's words only, and the collection that it is
 * about: its details name folders of the server, and are for the log.
 */
export function clientError(error: WarmpathError): WarmpathError {
  const isOfCollection = error.code.startsWith('WARMPATH_COLLECTION_');
  if (error.status !== 500 || !(isOfCollection || error.type === 'configuration_error')) return error;
  const path = isOfCollection ? error.path : undefined;
  return new WarmpathError(error.code, { cause: error, ...(path !== undefined && { path }) });
}

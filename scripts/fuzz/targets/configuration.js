// The gateway's configuration, as an operator writes it.
import assert from 'node:assert/strict';
import { ERROR_TABLE } from '@warmpath/core/internal';
import { checkConfig } from '../../../packages/gateway/dist/config/load.js';

export function configuration() {
  return {
    seeds: [
      // biome-ignore-start lint/suspicious/noTemplateCurlyInString: the configuration's own variables.
      'upstream:\n  url: http://localhost:1\nserver:\n  port: 1\n',
      'engines:\n  - url: http://a:1\n    kind: vllm\n  - url: http://b:1\nserver:\n  keys:\n    - name: a\n      key: ${A}\n',
      '{"upstream":{"url":"http://a"},"arrange":{"policy":"exact"},"session":{"store":{"kind":"redis"}}}',
      'upstream: &a\n  url: ${B:-http://x}\nserver: *a\n',
      // biome-ignore-end lint/suspicious/noTemplateCurlyInString: as above.
    ],
    run(bytes) {
      const { config, problems } = checkConfig(bytes.toString(), { A: '1234567890123456', B: '' });
      assert((config === undefined) === problems.length > 0, 'neither a configuration nor a problem');
      for (const { code, path, line, message } of problems) {
        assert(ERROR_TABLE[code] !== undefined, `${code} is no code of the table`);
        assert(typeof path === 'string' && message !== '' && (line === undefined || line >= 1));
      }
    },
  };
}

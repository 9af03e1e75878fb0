import { describeMetrics } from '@warmpath/gateway';
import { code, page, table } from './markdown.js';

/** The gateway's Prometheus metrics, from its registry. */
export function metricsPage() {
  const rows = describeMetrics().map(({ name, type, labels, help }) => {
    return [code(name), type, labels.map(code).join(', '), help];
  });
  return page(
    'Metrics',
    '`GET /metrics` answers with Prometheus text. On a host that is not loopback it needs [`server.operatorKey`](./configuration.md#server). [Monitor](../operate/monitor.md) says which ones to watch.',
    [table(['metric', 'type', 'labels', 'meaning'], rows)],
  );
}

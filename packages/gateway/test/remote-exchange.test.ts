import { setImmediate as turn } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { RelayOptions, RelayResult } from '../src/answer/relay.js';
import { UntouchedBody } from '../src/answer/response-body.js';
import type { Upstream } from '../src/dispatch/upstream.js';
import { errorShapeOf } from '../src/intake/apis/error-shape.js';
import type { Channel } from '../src/workers/channel.js';
import { RemoteExchange } from '../src/workers/remote-exchange.js';

const HEAD = { method: 'POST', url: '/v1/chat/completions', httpVersion: '1.1', headers: {} };
const REQUEST = { method: 'POST', path: '/v1/chat/completions', headers: {}, body: '{}' };
const SILENT = { send: () => {} } as unknown as Channel;

describe('a request that a worker has', () => {
  it('is over when its client had left before it was handed over, which the worker does not tell', () => {
    let open = 0;
    const upstream = {
      url: 'http://engine',
      track: () => {
        open++;
        return { ended: () => {}, retried: () => {}, settled: () => open-- };
      },
    } as unknown as Upstream;
    const settled: RelayResult[] = [];
    const options: RelayOptions = {
      headers: () => ({}),
      leftOut: [],
      body: new UntouchedBody(errorShapeOf(REQUEST.path)),
      errors: errorShapeOf(REQUEST.path),
      now: () => 0,
      reads: 'nothing',
      onAccepted: () => {},
      onSettled: (result) => settled.push(result),
    };
    const exchange = { errorCode: undefined, errorSource: undefined };
    const remote = new RemoteExchange(SILENT, 1, HEAD);
    expect(remote.response.takeOver(upstream, REQUEST as never, exchange as never, options)).toBe(true);
    expect(open).toBe(1);
    remote.closed({ status: 200, isFinished: false });
    expect(settled).toMatchObject([{ complete: false }]);
    expect(exchange.errorCode).toBe('WARMPATH_CLIENT_CLOSED');
    expect(open).toBe(0);
    remote.lost();
    expect(settled).toHaveLength(1);
  });

  it('tells whoever reads its body that the client has left, also where all of it had come', async () => {
    const { request } = new RemoteExchange(SILENT, 1, HEAD);
    const heard: unknown[] = [];
    request.on('error', (error) => heard.push(error)).on('end', () => heard.push('end'));
    request.resume();
    request.body(Buffer.from('{}'));
    request.bodyEnd();
    request.left();
    await turn();
    expect(heard).toMatchObject([{ code: 'WARMPATH_CLIENT_CLOSED' }]);
  });

  it('says nothing of a client that leaves once its body was read', async () => {
    const { request } = new RemoteExchange(SILENT, 1, HEAD);
    const heard: unknown[] = [];
    request.on('error', (error) => heard.push(error)).on('end', () => heard.push('end'));
    request.resume();
    request.body(Buffer.from('{}'));
    request.bodyEnd();
    await turn();
    request.left();
    await turn();
    expect(heard).toEqual(['end']);
  });
});

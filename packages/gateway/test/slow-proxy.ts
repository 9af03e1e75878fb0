import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';

/** A TCP proxy that holds every piece back for a while, drawn from a seed, and keeps their order. */
export class SlowProxy {
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server) {
    this.#server = server;
  }

  /** `longestMs`: the longest that a piece is held back. */
  static async start(port: number, { seed, longestMs }: { seed: number; longestMs: number }): Promise<SlowProxy> {
    let state = seed;
    const drawn = () => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return (state / 2 ** 32) * longestMs;
    };
    const server = createServer();
    const proxy = new SlowProxy(server);
    server.on('connection', (near) => {
      const far = connect(port, '127.0.0.1');
      proxy.#pass(near, far, drawn);
      proxy.#pass(far, near, drawn);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    return proxy;
  }

  get url(): string {
    return `redis://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    this.#server.close();
    await once(this.#server, 'close');
  }

  #pass(from: Socket, to: Socket, drawn: () => number): void {
    this.#sockets.add(from);
    let last = Promise.resolve();
    from.on('data', (piece) => {
      const held = new Promise<void>((resolve) => setTimeout(resolve, drawn()));
      last = Promise.all([last, held]).then(() => void to.write(piece));
    });
    from.on('error', () => {});
    from.on('close', () => {
      this.#sockets.delete(from);
      to.destroy();
    });
  }
}

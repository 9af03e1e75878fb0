// Preloaded into an engine process by a test: the first request breaks its loop.
import { PrefixCache } from '../../dist/cache/prefix-cache.js';

PrefixCache.prototype.commit = () => {
  throw new Error('broken for a test');
};

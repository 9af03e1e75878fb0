/**
 * Algorithm 1 of RAGCache++ as one writes it down: a trie of objects with a Map of children each, the walk scanning the
 * documents left in retrieval rank. What `arrange` is compared with.
 */
export class StraightforwardTrie {
  root = { children: new Map() };

  insert(keys) {
    let node = this.root;
    for (const key of keys) {
      let child = node.children.get(key);
      if (child === undefined) {
        child = { key, children: new Map(), count: 0 };
        node.children.set(key, child);
      }
      child.count++;
      node = child;
    }
  }

  order(documents, preambleKey) {
    const ordered = [];
    const remaining = documents.slice();
    let node = this.root.children.get(preambleKey);
    while (node !== undefined && remaining.length > 0) {
      let found;
      for (let i = 0; i < remaining.length; i++) {
        const child = node.children.get(remaining[i].key);
        if (child !== undefined) {
          ordered.push(remaining[i]);
          remaining.splice(i, 1);
          found = child;
          break;
        }
      }
      if (found === undefined) break;
      node = found;
    }
    return ordered.concat(remaining);
  }
}

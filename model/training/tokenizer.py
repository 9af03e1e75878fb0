"""Byte-level BPE with GPT-2 pre-tokenisation (for ASCII text) and a small vocabulary, kept in tok.json.

`python3 tokenizer.py OUT.json [TEXT_FILE...]` trains a new one. Weights belong to one tokenizer: leave tok.json alone unless
the model is trained from scratch.
"""
import collections
import json
import os
import random
import re
import sys

from generate import END, START, sample

PRETOKENS = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")
SPECIALS = ['<|bos|>', '<|im_start|>', '<|im_end|>', '<|pad|>']
VOCAB = 1536
DEFAULT = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'tok.json')


def byte_symbols():
    """GPT-2's printable stand-in for each of the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, extra = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return table


BYTES = byte_symbols()


def words(text):
    return [''.join(BYTES[b] for b in w.encode()) for w in PRETOKENS.findall(text)]


class Tokenizer:
    def __init__(self, path=DEFAULT):
        with open(path) as f:
            data = json.load(f)
        self.vocab, self.merges = data['vocab'], data['merges']
        self.id = {t: i for i, t in enumerate(self.vocab)}
        self.rank = {tuple(m.split(' ')): i for i, m in enumerate(self.merges)}
        self.bos, self.im_start, self.im_end = (self.id[t] for t in SPECIALS[:3])
        self.cache = {}

    def word(self, word):
        """Ids of one pre-token (in byte symbols)."""
        if word in self.cache:
            return self.cache[word]
        parts = list(word)
        while len(parts) > 1:
            rank, i = min((self.rank.get(pair, 1 << 30), i) for i, pair in enumerate(zip(parts, parts[1:])))
            if rank == 1 << 30:
                break
            parts = merged(parts, parts[i], parts[i + 1])
        ids = [self.id[p] for p in parts]
        if len(self.cache) < 200000:
            self.cache[word] = ids
        return ids

    def encode(self, text):
        """Ids of text in which START and END stand for the chat tokens."""
        ids = []
        for part in re.split(f'([{START}{END}])', text):
            if part == START:
                ids.append(self.im_start)
            elif part == END:
                ids.append(self.im_end)
            else:
                for w in words(part):
                    ids += self.word(w)
        return ids

    def decode(self, ids):
        back = {c: b for b, c in BYTES.items()}
        return b''.join(self.vocab[i].encode() if self.vocab[i] in SPECIALS else bytes(back[c] for c in self.vocab[i]) for i in ids).decode(errors='replace')

    def encode_sample(self, pieces):
        """Pieces of `generate.sample` -> (ids, spans): the whole prompt, and where its answers lie."""
        ids, spans = [self.bos], []
        for text, is_answer in pieces:
            more = self.encode(text)
            if is_answer:
                spans.append((len(ids), len(ids) + len(more)))
            ids += more
        return ids, spans


def merged(parts, a, b):
    out, i = [], 0
    while i < len(parts):
        if i + 1 < len(parts) and parts[i] == a and parts[i + 1] == b:
            out.append(a + b)
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def train(files):
    """-> (vocab, merges), from generated prompts and some plain English, so that other text does not fall apart into bytes."""
    r, counts = random.Random(1), collections.Counter()
    for _ in range(6000):
        for text, _answer in sample(r, 3, 6, 3, 1):
            counts.update(words(text.replace(START, '').replace(END, '')))
    for path in files:
        with open(path, errors='ignore') as f:
            counts.update(words(''.join(c for c in f.read() if ord(c) < 127)[:400000]))
    corpus = [(list(w), c) for w, c in counts.items() if c > 1 or len(w) < 4]
    merges, pairs, where = [], collections.Counter(), collections.defaultdict(set)
    for i, (parts, c) in enumerate(corpus):
        for pair in zip(parts, parts[1:]):
            pairs[pair] += c
            where[pair].add(i)
    while len(merges) < VOCAB - 256 - len(SPECIALS):
        (a, b), count = max(pairs.items(), key=lambda x: (x[1], x[0]))
        if count < 2:
            break
        merges.append(a + ' ' + b)
        for i in list(where[a, b]):
            parts, c = corpus[i]
            for pair in zip(parts, parts[1:]):
                pairs[pair] -= c
            parts = merged(parts, a, b)
            corpus[i] = (parts, c)
            for pair in zip(parts, parts[1:]):
                pairs[pair] += c
                where[pair].add(i)
        pairs.pop((a, b), None)
        where.pop((a, b), None)
    vocab = [BYTES[b] for b in range(256)]
    for m in merges:
        if m.replace(' ', '') not in vocab:
            vocab.append(m.replace(' ', ''))
    return vocab + SPECIALS, merges


if __name__ == '__main__':
    vocab, merges = train(sys.argv[2:])
    with open(sys.argv[1], 'w') as f:
        json.dump({'vocab': vocab, 'merges': merges}, f)
    print(len(vocab), len(merges))

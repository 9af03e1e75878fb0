"""Pulls apart the embeddings of attributes whose values look alike.

A model that has long been trained on documents in which the kind of value (a number of kg, a colour, a name) nearly always
tells the attribute ends up with one and the same embedding for all attributes that have names as values: asked for the
captain it gives any name of the right entity. More training does not undo that, because the difference between the words is
gone. This script gives each of them a difference again, along the directions in which the other attributes differ and which
the layers know how to carry. A few hundred steps of training then make use of it.

    python3 spread.py WEIGHTS.pt OUT.pt
"""
import sys

import torch

from generate import ALIKE, ATTRIBUTE_NAMES
from tokenizer import Tokenizer


def spread(state, seed=5):
    tokenizer, gen = Tokenizer(), torch.Generator().manual_seed(seed)
    embedding = state['e.weight'].clone()
    collapsed = ALIKE[0]

    def tokens(prefix, attributes):  # the tokens that tell the attribute, in running text (' ') or at the start of a line ('')
        return [tokenizer.encode(prefix + a) for a in attributes]

    codes = None
    for prefix in (' ', ''):
        own = [t[0] for t in tokens(prefix, collapsed)]
        if codes is None:
            short = [t for t in tokens(prefix, [a for a in ATTRIBUTE_NAMES if a not in collapsed]) if len(t) <= 2]
            others = embedding[sorted({t[0] for t in short} | {t[-1] for t in short})]
            others = others - others.mean(0)
            _, size, directions = torch.linalg.svd(others, full_matrices=False)
            k = min(14, len(others) - 1)
            mix = torch.linalg.qr(torch.randn(k, k, generator=gen))[0][:len(own)]
            codes = mix @ torch.diag(size[:k]) @ directions[:k]
            codes = codes / codes.norm(dim=1, keepdim=True) * others.norm(dim=1).mean()
        middle = embedding[own].mean(0)
        for token, code in zip(own, codes):
            embedding[token] = middle + code
    return dict(state, **{'e.weight': embedding})


if __name__ == '__main__':
    torch.save(spread(torch.load(sys.argv[1])), sys.argv[2])

"""Makes a trained model deeper: puts new layers, which at first change nothing, between the old ones.

    python3 grow.py WEIGHTS.pt OUT.pt 1 2        new layers before the old layers 1 and 2
"""
import sys

import torch

import model


def grow(state, before, seed=0):
    old = model.Config.of(state)
    order = []  # for each new layer the old one it copies, or None
    for i in range(old.layers):
        order += [None] * before.count(i) + [i]
    config = model.Config(old.vocab, old.width, len(order), old.heads, old.kv_heads, old.ff)
    out = model.views(config, model.initial(config, seed))
    for name, value in out.items():
        if not name.startswith('b.'):
            value.copy_(state[name])
            continue
        _, layer, rest = name.split('.', 2)
        source = order[int(layer)]
        if source is not None:
            value.copy_(state[f'b.{source}.{rest}'])
        elif rest in ('o.weight', 'd.weight'):
            value.zero_()
    return {k: v.clone() for k, v in out.items()}


if __name__ == '__main__':
    torch.save(grow(torch.load(sys.argv[1]), [int(x) for x in sys.argv[3:]]), sys.argv[2])

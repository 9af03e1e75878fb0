"""The native kernels against the PyTorch reference: losses and every gradient. `python3 test_native.py [WEIGHTS.pt]`"""
import os
import random
import sys

import numpy as np
import torch

import model
import native


WEIGHTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'warmpath-tiny.pt')


def test_native(path=WEIGHTS):
    state = torch.load(path)
    config = model.Config.of(state)
    flat = model.flatten(config, state)
    rand = random.Random(3)
    batch = []
    for n in (70, 300, 33):
        ids = [rand.randrange(60) for _ in range(n)]
        sel = sorted(rand.sample(range(n - 1), n // 3))
        batch.append((ids, sel, [ids[i + 1] for i in sel], [rand.random() / n for _ in sel]))
    g0, g1 = torch.zeros_like(flat), torch.zeros_like(flat)
    l0, h0 = model.forward_backward(config, flat, g0, batch)
    l1, h1 = native.Native(config).run(flat, g1, batch)
    print('loss', l0.mean().item(), l1.mean(), 'largest difference', np.abs(l0.numpy() - l1).max())
    assert np.abs(l0.numpy() - l1).max() < 0.15
    for (name, a), b in zip(model.views(config, g0).items(), model.views(config, g1).values()):
        err = ((a - b).norm() / (a.norm() + 1e-12)).item()
        print(f'{name:12} {a.norm().item():.5f} relative error {err:.4f}')
        assert err < 0.15, name  # bfloat16 rounding; a wrong gradient is off by about 1


if __name__ == '__main__':
    test_native(*sys.argv[1:])

"""Muon for the matrices of the layers, AdamW for the embedding and the norms, both on one flat parameter vector."""
import torch

import model

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalise(g, steps=5):
    """Newton-Schulz iteration towards the nearest (semi-)orthogonal matrix, for a stack [n, rows, cols] with rows <= cols."""
    x = g / (g.norm(dim=(1, 2), keepdim=True) + 1e-7)
    x = x.bfloat16()
    a, b, c = NEWTON_SCHULZ
    for _ in range(steps):
        s = x @ x.transpose(1, 2)
        x = a * x + (b * s + c * (s @ s)) @ x
    return x.float()


class Optimiser:
    def __init__(self, config, flat, muon_lr=0.01, adam_lr=2e-3, momentum=0.95, weight_decay=0.05, betas=(0.9, 0.98)):
        self.config, self.flat = config, flat
        self.muon_lr, self.adam_lr, self.momentum, self.weight_decay, self.betas = muon_lr, adam_lr, momentum, weight_decay, betas
        self.state = {'velocity': torch.zeros_like(flat), 'square': torch.zeros_like(flat), 'step': 0}
        self.groups, self.adam = {}, []  # Muon's matrices by shape (rows <= cols); the rest
        for name, view in model.views(config, flat).items():
            if name.startswith('b.') and view.dim() == 2:
                self.groups.setdefault((min(view.shape), max(view.shape)), []).append(name)
            else:
                self.adam.append(name)

    def step(self, grads, scale=1.0, clip=1.0):
        """One update with both learning rates times `scale`. -> gradient norm"""
        s = self.state
        s['step'] += 1
        norm = grads.norm().item()
        grads *= min(1.0, clip / (norm + 1e-6))
        w, g, v, q = (model.views(self.config, x) for x in (self.flat, grads, s['velocity'], s['square']))
        for shape, names in self.groups.items():
            stack = []
            for n in names:
                v[n].mul_(self.momentum).add_(g[n], alpha=1 - self.momentum)
                u = g[n].lerp(v[n], self.momentum)
                stack.append(u if u.shape == shape else u.t())
            update = orthogonalise(torch.stack(stack))
            for n, u in zip(names, update):
                rows, cols = w[n].shape
                u = u if w[n].shape == shape else u.t()
                w[n].mul_(1 - self.muon_lr * scale * self.weight_decay)
                w[n].add_(u, alpha=-self.muon_lr * scale * max(1.0, rows / cols) ** 0.5)
        b1, b2 = self.betas
        for n in self.adam:
            v[n].mul_(b1).add_(g[n], alpha=1 - b1)
            q[n].mul_(b2).addcmul_(g[n], g[n], value=1 - b2)
            lr = self.adam_lr * scale
            denom = (q[n] / (1 - b2 ** s['step'])).sqrt_().add_(1e-8)
            if w[n].dim() == 2:
                w[n].mul_(1 - lr * self.weight_decay)
            w[n].addcdiv_(v[n], denom, value=-lr / (1 - b1 ** s['step']))
        return norm

"""The model: a small llama-architecture transformer in plain PyTorch, and the flat layout its parameters are kept in.

All parameters live in one float vector (`LAYOUT` gives the order), so that the optimiser, the averages and the native
kernels (`native.cpp`) can treat them as one array. This file is the reference: the native kernels are tested against it.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

HEAD_DIM = 32
EPS = 1e-5
ROPE_BASE = 10000.0


@dataclass(frozen=True)
class Config:
    vocab: int = 1536
    width: int = 128
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    ff: int = 320

    def layout(self):
        """-> list of (name, shape) in the order of the flat vector; the names are those of the checkpoint files."""
        d, kv = self.width, self.kv_heads * HEAD_DIM
        out = [('e.weight', (self.vocab, d))]
        for i in range(self.layers):
            b = f'b.{i}.'
            out += [(b + 'n1.w', (d,)), (b + 'q.weight', (self.heads * HEAD_DIM, d)), (b + 'k.weight', (kv, d)),
                    (b + 'v.weight', (kv, d)), (b + 'o.weight', (d, self.heads * HEAD_DIM)), (b + 'n2.w', (d,)),
                    (b + 'g.weight', (self.ff, d)), (b + 'u.weight', (self.ff, d)), (b + 'd.weight', (d, self.ff))]
        return out + [('n.w', (d,))]

    def size(self):
        return sum(math.prod(shape) for _, shape in self.layout())

    @staticmethod
    def of(state):
        """The configuration of a checkpoint, read from the shapes of its tensors."""
        return Config(vocab=state['e.weight'].shape[0], width=state['e.weight'].shape[1],
                      layers=1 + max(int(k.split('.')[1]) for k in state if k.startswith('b.')),
                      heads=state['b.0.q.weight'].shape[0] // HEAD_DIM, kv_heads=state['b.0.k.weight'].shape[0] // HEAD_DIM,
                      ff=state['b.0.g.weight'].shape[0])


def views(config, flat):
    """-> dict name -> view into the flat vector."""
    out, at = {}, 0
    for name, shape in config.layout():
        n = math.prod(shape)
        out[name] = flat[at:at + n].view(shape)
        at += n
    return out


def flatten(config, state):
    """A checkpoint's tensors -> one flat float vector."""
    return torch.cat([state[name].detach().float().reshape(-1) for name, _ in config.layout()])


def initial(config, seed=0):
    """Fresh weights, with a head start: one embedding channel is constant, and two heads of layer 0 use it to look one
    and two tokens back (the rotary phases make the score peak at that distance). Training is free to change all of it."""
    gen = torch.Generator().manual_seed(seed)
    flat = torch.empty(config.size())
    w = views(config, flat)
    for name, p in w.items():
        if p.dim() == 1:
            p.fill_(1.0)
        else:
            std = 0.05 if name == 'e.weight' else 0.02 / math.sqrt(2 * config.layers) if name.split('.')[2] in 'od' else 0.02
            p.normal_(0, std, generator=gen)
    w['e.weight'][:, 0] = 0.3
    theta = 1.0 / (ROPE_BASE ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
    q, k = w['b.0.q.weight'], w['b.0.k.weight']
    k[:HEAD_DIM] = 0
    for head, back in ((0, 1), (1, 2)):
        q[head * HEAD_DIM:(head + 1) * HEAD_DIM] = 0
        for j in range(5):
            q[head * HEAD_DIM + 2 * j, 0] = 1.1 * math.cos(back * theta[j])
            q[head * HEAD_DIM + 2 * j + 1, 0] = -1.1 * math.sin(back * theta[j])
            k[2 * j, 0] = 1.1
    return flat


def rms(x, w):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPS) * w


def rotate(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def hidden(config, w, ids):
    """Token ids [N] -> last hidden states [N, width]; `w` as from `views`."""
    n, h, kv = len(ids), config.heads, config.kv_heads
    theta = 1.0 / (ROPE_BASE ** (torch.arange(0, HEAD_DIM, 2).float() / HEAD_DIM))
    angle = torch.outer(torch.arange(n).float(), theta)
    cos, sin = angle.cos(), angle.sin()
    mask = torch.full((n, n), float('-inf')).triu(1)
    x = w['e.weight'][ids]
    for i in range(config.layers):
        p = {k[len(f'b.{i}.'):]: v for k, v in w.items() if k.startswith(f'b.{i}.')}
        y = rms(x, p['n1.w'])
        q = rotate((y @ p['q.weight'].t()).view(n, h, HEAD_DIM).transpose(0, 1), cos, sin)
        k = rotate((y @ p['k.weight'].t()).view(n, kv, HEAD_DIM).transpose(0, 1), cos, sin).repeat_interleave(h // kv, 0)
        v = (y @ p['v.weight'].t()).view(n, kv, HEAD_DIM).transpose(0, 1).repeat_interleave(h // kv, 0)
        att = (q @ k.transpose(-1, -2) / math.sqrt(HEAD_DIM) + mask).softmax(-1) @ v
        x = x + att.transpose(0, 1).reshape(n, h * HEAD_DIM) @ p['o.weight'].t()
        y = rms(x, p['n2.w'])
        x = x + (F.silu(y @ p['g.weight'].t()) * (y @ p['u.weight'].t())) @ p['d.weight'].t()
    return rms(x, w['n.w'])


def forward_backward(config, flat, grads, batch):
    """The reference for `native.Native.run`: losses and hits at the selected positions; fills `grads` unless None."""
    losses, hits = [], []
    leaf = flat.detach().clone().requires_grad_(grads is not None)
    w = views(config, leaf)
    for ids, sel, target, weight in batch:
        h = hidden(config, w, torch.as_tensor(ids).long())
        logits = h[torch.as_tensor(sel).long()] @ w['e.weight'].t()
        target = torch.as_tensor(target).long()
        loss = F.cross_entropy(logits, target, reduction='none')
        if grads is not None:
            (loss * torch.as_tensor(weight)).sum().backward(retain_graph=False)
        losses.append(loss.detach())
        hits.append(logits.argmax(-1) == target)
    if grads is not None:
        grads.copy_(leaf.grad)
    return torch.cat(losses), torch.cat(hits)

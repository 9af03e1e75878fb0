"""Loads the native kernels (`native.cpp`), building them on first use; `available()` says whether this machine can.

They need g++ and a CPU with AVX-512 BF16. Without them training falls back to `model.forward_backward`, much slower.
"""
import ctypes
import os
import subprocess

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))


def available():
    try:
        return 'avx512_bf16' in open('/proc/cpuinfo').read()
    except OSError:
        return False


def build():
    """-> path of the shared library, compiled when the source is newer."""
    source = os.path.join(HERE, 'native.cpp')
    folder = os.path.join(os.environ.get('XDG_CACHE_HOME', os.path.expanduser('~/.cache')), 'warmpath-tiny')
    os.makedirs(folder, exist_ok=True)
    library = os.path.join(folder, 'native.so')
    if not os.path.exists(library) or os.path.getmtime(library) < os.path.getmtime(source):
        part = f'{library}.{os.getpid()}'
        subprocess.run(['g++', '-O3', '-march=native', '-ffast-math', '-fno-finite-math-only', '-shared', '-fPIC', '-pthread', source, '-o', part], check=True)
        os.replace(part, library)
    return library


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


class Native:
    def __init__(self, config, threads=2):
        self.lib = ctypes.CDLL(build())
        self.lib.warm_new.restype = ctypes.c_void_p
        self.lib.warm_size.restype = ctypes.c_long
        self.handle = ctypes.c_void_p(self.lib.warm_new(config.vocab, config.width, config.layers, config.heads, config.kv_heads, config.ff, threads))
        assert self.handle and self.lib.warm_size(self.handle) == config.size()

    def run(self, flat, grads, batch):
        """One pass over `batch`, a list of (ids, selected positions, their targets, their weights).
        -> (losses, hits) at the selected positions as numpy arrays; fills `grads` (a flat tensor) unless it is None."""
        cat = lambda i, dtype: np.ascontiguousarray(np.concatenate([np.asarray(b[i], dtype) for b in batch]))
        tokens, sel, target, weight = cat(0, np.int32), cat(1, np.int32), cat(2, np.int32), cat(3, np.float32)
        first = np.cumsum([0] + [len(b[0]) for b in batch], dtype=np.int32)
        sel_first = np.cumsum([0] + [len(b[1]) for b in batch], dtype=np.int32)
        loss, hit = np.empty(len(sel), np.float32), np.empty(len(sel), np.int32)
        assert flat.dtype == torch.float32 and flat.is_contiguous() and (grads is None or grads.is_contiguous())
        self.lib.warm_run(self.handle, ctypes.c_void_p(flat.data_ptr()), ctypes.c_void_p(grads.data_ptr() if grads is not None else 0), len(batch),
                          pointer(first), pointer(tokens), pointer(sel_first), pointer(sel), pointer(target), pointer(weight), pointer(loss), pointer(hit))
        return loss, hit.astype(bool)

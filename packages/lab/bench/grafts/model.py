"""A Qwen2 model of a GGUF file in plain PyTorch, and the cells of its cache, which callers read and write.

The index of a cell is its position. Keys are stored behind the rotation. Cells are f16, as the engine has them.
"""
import numpy as np
import torch
import torch.nn.functional as F
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
         r"\s*[\r\n]+|\s+(?!\S)|\s+")
"""How Qwen2 cuts text before byte pairs are merged."""
CONTROL_TOKEN = 3
CELL_ALIGNMENT = 8


class Model:
    def __init__(self, path, device):
        reader = GGUFReader(path)
        architecture = reader.fields['general.architecture'].contents()
        if architecture != 'qwen2' or 'qwen2.rope.scaling.type' in reader.fields:
            raise SystemExit(f'{path}: {architecture}. Only Qwen2 models without scaled rotation can be measured.')

        def field(name):
            return reader.fields['qwen2.' + name].contents()

        self.device = device
        self.layers = field('block_count')
        self.heads = field('attention.head_count')
        self.kv_heads = field('attention.head_count_kv')
        self.size = field('embedding_length') // self.heads
        self.eps = field('attention.layer_norm_rms_epsilon')
        pairs = torch.arange(0, self.size, 2, device=device, dtype=torch.float64)
        self.frequencies = field('rope.freq_base') ** (-pairs / self.size)
        self.tokenizer = read_tokenizer(reader)
        self.ends = [self.token('<|im_end|>'), self.token('<|endoftext|>')]
        self._read_weights({tensor.name: tensor for tensor in reader.tensors})

    def _read_weights(self, tensors):
        def read(name):
            tensor = tensors[name]
            return torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type))).to(self.device)

        self.embedding = read('token_embd.weight')
        self.output = read('output.weight') if 'output.weight' in tensors else self.embedding
        # Small models have one matrix for both. A file may hold it twice: the output's copy has more bits.
        some = slice(0, 1000)
        if (self.output[some] - self.embedding[some]).norm() < 0.2 * self.output[some].norm():
            self.embedding = self.output
        self.norm = read('output_norm.weight')
        self.blocks = []
        for i in range(self.layers):
            def block(*names):
                return torch.cat([read(f'blk.{i}.{name}') for name in names])

            self.blocks.append({
                'attention_norm': block('attn_norm.weight'),
                'qkv': block('attn_q.weight', 'attn_k.weight', 'attn_v.weight'),
                'qkv_bias': block('attn_q.bias', 'attn_k.bias', 'attn_v.bias'),
                'attention_output': block('attn_output.weight'),
                'ffn_norm': block('ffn_norm.weight'),
                'gate_up': block('ffn_gate.weight', 'ffn_up.weight'),
                'down': block('ffn_down.weight'),
            })

    def encode(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def token(self, text):
        return self.tokenizer.token_to_id(text)

    @property
    def bytes_per_cell(self):
        return self.layers * self.kv_heads * self.size * 2 * 2

    def cells(self, rows, length):
        """Keys and values, each [layers, rows, cells, KV heads, head size]. Padding writes into the last cell."""
        length = align(length) + CELL_ALIGNMENT
        shape = (self.layers, rows, length, self.kv_heads, self.size)
        return [torch.zeros(shape, dtype=torch.float16, device=self.device) for _ in ('keys', 'values')]

    def rotate(self, x, positions):
        angles = positions.double().unsqueeze(-1) * self.frequencies
        cos, sin = angles.cos().float().unsqueeze(-2), angles.sin().float().unsqueeze(-2)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def moved(self, keys, distance):
        """Keys [layers, cells, KV heads, head size] as they would stand `distance` positions later."""
        return self.rotate(keys.float(), torch.full((1,), distance, device=self.device)).half()

    def forward(self, cells, rows, tokens, positions):
        """Computes tokens [batch, T] and writes their cells. Position -1 is padding.

        `rows`: the row of the cells for each of the batch, or None for all. Returns hidden states [batch, T, width].
        """
        batch, count = tokens.shape
        group = self.heads // self.kv_heads
        keys_end = align(int(positions.max()) + 1)
        padding_cell = cells[0].shape[2] - 1
        slots = positions.masked_fill(positions < 0, padding_cell)
        positions = positions.clamp(min=0)
        on_gpu = self.device != 'cpu'
        compute = torch.float16 if on_gpu else torch.float32
        hidden_keys = torch.arange(keys_end, device=self.device) > positions.unsqueeze(-1)
        mask = torch.zeros(batch, 1, 1, count, keys_end, dtype=compute, device=self.device)
        mask = mask.masked_fill_(hidden_keys[:, None, None], float('-inf'))
        mask = mask.expand(batch, 1, group, count, keys_end).reshape(batch, 1, group * count, keys_end)
        mask = mask.expand(batch, self.kv_heads, group * count, keys_end)
        if rows is None:
            rows = torch.arange(batch, device=self.device)
        x = self.embedding[tokens]
        for cached_keys, cached_values, block in zip(*cells, self.blocks):
            y = F.linear(self._norm(x, block['attention_norm']), block['qkv'], block['qkv_bias'])
            q, k, v = y.view(batch, count, -1, self.size).split([self.heads, self.kv_heads, self.kv_heads], 2)
            cached_keys[rows.unsqueeze(1), slots] = self.rotate(k, positions).half()
            cached_values[rows.unsqueeze(1), slots] = v.half()
            q = self.rotate(q, positions).view(batch, count, self.kv_heads, group, self.size).permute(0, 2, 3, 1, 4)
            q = q.reshape(batch, self.kv_heads, group * count, self.size).to(compute)
            k, v = (part[rows, :keys_end].transpose(1, 2).to(compute) for part in (cached_keys, cached_values))
            attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
            attended = attended.view(batch, self.kv_heads, group, count, self.size).permute(0, 3, 1, 2, 4)
            x = x + F.linear(attended.reshape(batch, count, -1).float(), block['attention_output'])
            gate, up = F.linear(self._norm(x, block['ffn_norm']), block['gate_up']).chunk(2, -1)
            x = x + F.linear(F.silu(gate) * up, block['down'])
        return x

    def logits(self, x):
        return F.linear(self._norm(x, self.norm), self.output)

    def _norm(self, x, weight):
        return F.rms_norm(x, (x.shape[-1],), weight, self.eps)


def align(length):
    return (length + CELL_ALIGNMENT - 1) // CELL_ALIGNMENT * CELL_ALIGNMENT


def read_tokenizer(reader):
    tokens = reader.fields['tokenizer.ggml.tokens'].contents()
    types = reader.fields['tokenizer.ggml.token_type'].contents()
    merges = [tuple(pair.split(' ')) for pair in reader.fields['tokenizer.ggml.merges'].contents()]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(WORDS), 'isolated'), pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([token for token, kind in zip(tokens, types) if kind == CONTROL_TOKEN])
    return tokenizer

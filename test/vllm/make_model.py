"""Writes a model whose weights vLLM makes up: the tokenizer and chat template of SmolLM2, and two small layers for
tests, or the shape of Qwen2.5 7B for times.

usage: make_model.py FOLDER_OF_GGUF MODEL [7b]
"""

import json
import pathlib
import sys

from transformers import AutoTokenizer

source, model, shape = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3:]
[weights] = source.glob("*.gguf")
tokenizer = AutoTokenizer.from_pretrained(str(source), gguf_file=weights.name)
tokenizer.save_pretrained(str(model))
config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": len(tokenizer),
    "hidden_size": 128,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 64,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 100000,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "bos_token_id": tokenizer.bos_token_id,
    "eos_token_id": tokenizer.eos_token_id,
    "dtype": "float32",
}
if shape == ["7b"]:
    config |= {
        "vocab_size": 152064,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }
(model / "config.json").write_text(json.dumps(config, indent=1))

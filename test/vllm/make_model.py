"""Writes a model for tests: the tokenizer and chat template of SmolLM2, and two layers whose weights vLLM makes up.

usage: make_model.py FOLDER_OF_GGUF MODEL
"""

import json
import pathlib
import sys

from transformers import AutoTokenizer

source, model = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
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
(model / "config.json").write_text(json.dumps(config, indent=1))

"""A random language model of 60 kB in GGUF layout: llama.cpp's real server, without real weights.

It answers gibberish of printable characters, the same one for the same seed, within milliseconds.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

WIDTH, HEADS, INNER, CONTEXT = 32, 2, 64, 4096
ALIGNMENT = 32
_UINT32, _INT32, _FLOAT32, _STRING, _ARRAY = 4, 5, 6, 8, 9
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_tiny_model(path: Path, seed: int = 0) -> Path:
    """Write the model to ``path``."""
    draw = random.Random(seed)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581"]
    tokens += [chr(code) for code in range(33, 127)]
    kinds = [_UNKNOWN, _CONTROL, _CONTROL, *[_BYTE] * 256, *[_NORMAL] * (len(tokens) - 259)]

    def normal(rows: int, columns: int, scale: float) -> list[float]:
        return [draw.gauss(0, scale) for _ in range(rows * columns)]

    # Bytes and control tokens get logit 0, so that the answer is made of printable characters.
    head = [0.0] * (WIDTH * 259) + normal(len(tokens) - 259, WIDTH, 0.6)
    ones = [1.0] * WIDTH
    tensors: dict[str, tuple[tuple[int, ...], list[float]]] = {
        "token_embd.weight": ((WIDTH, len(tokens)), normal(len(tokens), WIDTH, 1.0)),
        "output_norm.weight": ((WIDTH,), ones),
        "output.weight": ((WIDTH, len(tokens)), head),
        "blk.0.attn_norm.weight": ((WIDTH,), ones),
        "blk.0.ffn_norm.weight": ((WIDTH,), ones),
        **{
            f"blk.0.attn_{part}.weight": ((WIDTH, WIDTH), normal(WIDTH, WIDTH, 0.3))
            for part in ("q", "k", "v", "output")
        },
        "blk.0.ffn_gate.weight": ((WIDTH, INNER), normal(INNER, WIDTH, 0.3)),
        "blk.0.ffn_up.weight": ((WIDTH, INNER), normal(INNER, WIDTH, 0.3)),
        "blk.0.ffn_down.weight": ((INNER, WIDTH), normal(WIDTH, INNER, 0.3)),
    }
    fields: list[tuple[str, int, Any]] = [
        ("general.architecture", _STRING, "llama"),
        ("general.name", _STRING, "tiny random model"),
        ("llama.context_length", _UINT32, CONTEXT),
        ("llama.embedding_length", _UINT32, WIDTH),
        ("llama.block_count", _UINT32, 1),
        ("llama.feed_forward_length", _UINT32, INNER),
        ("llama.rope.dimension_count", _UINT32, WIDTH // HEADS),
        ("llama.attention.head_count", _UINT32, HEADS),
        ("llama.attention.head_count_kv", _UINT32, HEADS),
        ("llama.attention.layer_norm_rms_epsilon", _FLOAT32, 1e-5),
        ("tokenizer.ggml.model", _STRING, "llama"),
        ("tokenizer.ggml.tokens", _ARRAY, (_STRING, tokens)),
        ("tokenizer.ggml.scores", _ARRAY, (_FLOAT32, [-float(i) for i in range(len(tokens))])),
        ("tokenizer.ggml.token_type", _ARRAY, (_INT32, kinds)),
        ("tokenizer.ggml.unknown_token_id", _UINT32, 0),
        ("tokenizer.ggml.bos_token_id", _UINT32, 1),
        ("tokenizer.ggml.eos_token_id", _UINT32, 2),
        ("tokenizer.chat_template", _STRING, TEMPLATE),
    ]
    header = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    for key, kind, value in fields:
        header += _text(key) + struct.pack("<I", kind) + _value(kind, value)
    data = b""
    for name, (shape, values) in tensors.items():
        header += _text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        header += struct.pack("<IQ", 0, len(data))
        data += _padded(struct.pack(f"<{len(values)}f", *values))
    path.write_bytes(_padded(header) + data)
    return path


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _text(value)
    if kind == _ARRAY:
        inner, items = value
        return struct.pack("<IQ", inner, len(items)) + b"".join(_value(inner, item) for item in items)
    return struct.pack({_UINT32: "<I", _INT32: "<i", _FLOAT32: "<f"}[kind], value)


def _padded(raw: bytes) -> bytes:
    return raw + b"\0" * (-len(raw) % ALIGNMENT)

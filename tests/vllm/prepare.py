"""The tests' model: pulled by sha256 as GGUF, then written as a folder in Hugging Face layout for vLLM.

Usage: python tests/vllm/prepare.py FOLDER

The weights are dequantised to bfloat16: the same numbers in another container, 1.3 GB. Does nothing if
the folder is there.
"""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path

from ecoagent.models import ModelSource, ModelStore
from ecoagent.runs import Progress, sha256_file
from ecoagent.settings import ModelSettings

TABLE = Path(__file__).with_name("model.toml")
ABOUT = "source.json"


def source() -> ModelSource:
    """The pinned row."""
    return ModelSource.model_validate(tomllib.loads(TABLE.read_text("utf-8"))["model"][0])


def prepare(folder: Path) -> None:
    """Write ``folder``; it appears in full or not at all."""
    row = source()
    if folder.is_dir() and json.loads((folder / ABOUT).read_text("utf-8"))["gguf_sha256"] == row.digest:
        return
    gguf = ModelStore(ModelSettings(), {row.name: row}).path(row.name, Progress())
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    partial = folder.with_name(folder.name + ".partial")
    for old in (partial, folder):
        shutil.rmtree(old, ignore_errors=True)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(partial)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(partial)
    about = {
        "model": row.name,
        "gguf_sha256": row.digest,
        "safetensors_sha256": sha256_file(partial / "model.safetensors"),
    }
    (partial / ABOUT).write_text(json.dumps(about, indent=1) + "\n", "utf-8")
    partial.rename(folder)


if __name__ == "__main__":
    prepare(Path(sys.argv[1]))

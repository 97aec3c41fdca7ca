"""A small encoder ablation with made-up numbers."""

from __future__ import annotations

from typing import Any

ENCODER = "all-MiniLM-L6-v2"
PLACES = (("syn", "val"), ("syn", "test+cold"), ("real", "test"), ("restbench", "test"))
ARMS = (("untrained", "Untrained"), ("siamese", "Siamese"), ("no_mask", "Siamese, <no> masking"))
GAINS = {
    "siamese": {"syn": 0.2, "real": 0.03, "restbench": -0.06},
    "no_mask": {"syn": 0.19, "real": 0.05, "restbench": 0.01},
}


def encoder_ablation(encoder: str = ENCODER) -> dict[str, Any]:
    """As ``ecoagent ablate encoder`` writes it: intervals are 0.04 to each side, bases 0.5."""
    arms = [
        {
            "arm": arm,
            "label": label,
            "what": f"What {arm} is.",
            "encoder": encoder,
            "towers": "one",
            "pooling": "mean",
            "parameters": 22_713_216,
            "pairs": None if arm == "untrained" else 3528,
            "steps": None if arm == "untrained" else 111,
            "seconds": None if arm == "untrained" else 131.2,
        }
        for arm, label in ARMS
    ]
    return {
        "seeds": [0, 1, 2],
        "chosen": "siamese",
        "arms": arms,
        "rows": [_row(arm, *place) for place in PLACES for arm, _ in ARMS],
        "baselines": [
            {"ranker": "bm25", "label": "BM25", "set": "real", "split": "test", "MRR": 0.401,
             "interval": [0.35, 0.45]}
        ],
        "notes": ["A note of the ablation."],
    }  # fmt: skip


def _row(arm: str, set_name: str, split: str) -> dict[str, Any]:
    gain = GAINS.get(arm, {}).get(set_name, 0.0)
    row: dict[str, Any] = {
        "arm": arm,
        "set": set_name,
        "split": split,
        "queries": 1234,
        "tools": 56,
        "MRR": round(0.5 + gain, 6),
        "interval": _around(0.5 + gain),
        "by_seed": [round(0.5 + gain, 6)] * 3,
    }
    if arm != "untrained":
        row["against_untrained"] = {"difference": gain, "interval": _around(gain), "p": 0.0123}
    if arm != "siamese":
        other = round(gain - GAINS["siamese"][set_name], 6)
        row["against_chosen"] = {"difference": other, "interval": _around(other), "p": 0.4}
    return row


def _around(value: float) -> list[float]:
    return [round(value - 0.04, 6), round(value + 0.04, 6)]

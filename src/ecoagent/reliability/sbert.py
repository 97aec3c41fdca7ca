"""The sentence encoder of the paper's Section 2, from the weights store."""

from __future__ import annotations

from ecoagent.models import ModelStore
from ecoagent.retrieval import Encoder, load_encoder
from ecoagent.runs import RunContext


def load_sbert(ctx: RunContext, name: str) -> Encoder:
    """The encoder ``name`` with mean pooling; its weights are pulled if they are not in the store.

    Raises:
        UserError: the weights cannot be had or are not the pinned ones.
    """
    store = ModelStore(ctx.settings.models)
    return load_encoder(store.path(name, ctx.progress), name=name, pooling="mean")

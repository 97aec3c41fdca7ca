"""Settings of TR-Feedback (Xu et al. 2024, arXiv 2406.17465). Defaults are its paper's where it gives any."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from ecoagent.settings.bounds import listed
from ecoagent.settings.sections import Fraction, Section

Domain = Literal["in_domain", "out_of_domain", "real"]


class FeedbackSettings(Section):
    """Iterative feedback of a language model for tool retrieval, and the retriever trained for it."""

    iterations: int = Field(3, ge=1, le=20, description="T, rewritings of a query at most (its T = 3).")
    critics: tuple[str, ...] = Field(
        (), description="Critic models of llm.engine, each a row of the result; empty = llm.model."
    )
    tools_shown: int = Field(
        5, ge=1, le=50, description="Retrieved tools the critic sees; judged at 1, 3, 5."
    )
    description_words: int = Field(
        30, ge=4, description="Words of a tool's description in the prompt; the paper does not say."
    )
    max_words: int = Field(40, ge=4, description="A longer rewritten query is not used; not in the paper.")
    comprehension_tokens: int = Field(160, ge=16, description="Limit of the first answer; not in the paper.")
    assessment_tokens: int = Field(80, ge=16, description="Limit of the second answer; not in the paper.")
    temperature: float = Field(0.0, ge=0, le=2, description="Of the critic; not given in the paper.")
    critic_queries: int | None = Field(
        None, ge=0, description="Training queries the critic rewrites, the first by id; none = all."
    )
    test_queries: int | None = Field(
        None, ge=1, description="Test queries of a domain, the first by id; none = all."
    )
    domains: tuple[Domain, ...] = Field(
        ("in_domain", "out_of_domain"),
        description="What is judged: Syn test of trained categories; Syn test and cold of categories held "
        "out; Real test.",
    )
    category: Literal["service", "tag", "provider"] = Field(
        "service", description="What a tool's category is: the service it belongs to, first tag or provider."
    )
    held_out: Fraction = Field(
        0.2, description="Share of tools whose categories are held out of training; not given in the paper."
    )
    encoder: str = Field(
        "google-bert/bert-base-uncased", description="Both towers start from it (BERT-base)."
    )
    pooling: Literal["cls", "mean"] = Field("mean", description="As ToolBench's retriever; not in the paper.")
    max_length: int = Field(128, ge=8, description="Tokens of query and tool (its Section 4.1).")
    batch_size: int = Field(128, ge=2, description="Its Section 4.1.")
    learning_rate: float = Field(2e-5, gt=0, description="Its Section 4.1.")
    epochs: float = Field(50.0, gt=0, le=1000, description="At most; its Section 4.1.")
    round_epochs: float = Field(
        1.0, gt=0, le=1000, description="Epochs until negatives are mined anew and val is looked at."
    )
    patience: int = Field(5, ge=1, description="Rounds without a better val before it stops (Section 4.1).")
    warmup_ratio: Fraction = Field(0.1, description="Share of steps the rate rises over; not in the paper.")
    alpha: tuple[float, ...] = Field(
        (1.0,), description="alpha_t of the loss from t = 0, the last for all later t; not in the paper: 1."
    )
    tau: float = Field(0.05, gt=0, description="tau; not in the paper, as in Eq. 3 of RATED.")
    negatives: int = Field(
        1, ge=0, description="Top-ranked tools that are no gold, for each q_t; number not in the paper."
    )
    train_pairs: int | None = Field(
        None, ge=1, description="Training pairs, the critic's queries first, then by id; none = all."
    )
    rrf_k: int = Field(60, ge=1, description="Constant of reciprocal rank fusion (Cormack et al. 2009).")
    gate: Fraction = Field(
        0.5,
        description="The fusion calls the critic where the calibrated probability that the first tool is "
        "right is below; 1 = always, 0 = never.",
    )

    _critics = field_validator("domains")(listed)

    @field_validator("critics")
    @classmethod
    def _no_twin(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return listed(names) if names else names

    @field_validator("alpha")
    @classmethod
    def _weights(cls, alpha: tuple[float, ...]) -> tuple[float, ...]:
        if not alpha or min(alpha) < 0 or not any(alpha):
            raise ValueError("give weights of at least 0, one above 0")
        return alpha

"""Settings by section. Defaults are the paper's constants, each field naming its source.

``knob=True`` marks a performance setting: it changes how fast a stage runs, never what it writes,
and so takes no part in stage keys.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from ecoagent.schema.tools import CATALOGS, Granularity
from ecoagent.settings.bounds import bounded, listed, not_below, whole

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]


def knob(default: Any, description: str, **kwargs: Any) -> Any:
    """A field without influence on results."""
    return Field(default, description=description, json_schema_extra={"knob": True}, **kwargs)


class Section(BaseModel):
    """Base of the sections; unknown keys, NaN, infinity and numbers beyond all use are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _in_bounds(cls, value: Any) -> Any:
        for number in value if isinstance(value, tuple) else (value,):
            bounded(number)
        return value


class FlowSettings(Section):
    """How flows run."""

    workers: int = knob(2, "Threads for shard tasks.", ge=1, le=1024)
    runner: Literal["threads", "ray"] = knob(
        "threads", "threads of this process, or a Ray cluster (extra `ray`) for generation and labelling."
    )
    ray_address: str | None = knob(None, "Address of the Ray cluster; none = one on this machine.")
    tools_per_shard: int = Field(200, ge=1, description="Target shard size; shards are assigned by id hash.")


class CrawlSettings(Section):
    """Which catalogs are read, at what granularity."""

    catalogs: tuple[Literal["langchain", "crewai", "llamaindex", "n8n"], ...] = Field(
        CATALOGS, description="Catalogs to crawl (paper, Section 2: these four)."
    )
    _catalogs = field_validator("catalogs")(listed)
    n8n_official: bool = Field(True, description="Include n8n's two official packages (11.7 and 1.8 MB).")
    packages: tuple[str, ...] = Field((), description="Only these packages; empty = all of the lock file.")
    granularity: Granularity = Field("tool", description="package (paper), tool or operation.")
    lock: Path | None = Field(None, description="Lock file; none = the one shipped.")
    backend: Literal["client", "http", "both"] = Field(
        "both",
        description="client: packages through the user's own pip and npm; http: documentation snapshots; "
        "both: whatever the lock file pins.",
    )
    table: Path | None = Field(None, description="CSV of packages to pin from; none = the one shipped.")
    artifact_dir: Path = knob(Path("outputs/store/artifacts"), "Downloaded artifacts, by sha256.")
    max_artifact_mb: int = knob(256, "A larger artifact is an error.", ge=1)
    max_member_mb: int = knob(64, "A larger archive member is an error.", ge=1)
    timeout_s: float = knob(300.0, "Limit of one pip or npm call, seconds.", gt=0)


class HttpSettings(Section):
    """How documentation pages, listings and links are fetched. Nothing here changes what is parsed."""

    user_agent: str = knob(
        "ecoagent/0.1 (research crawler of AI-agent tool catalogs)",
        "Sent with every request; name a contact address in it before a large crawl.",
        min_length=3,
    )
    requests_per_second: float = knob(1.0, "Rate for each host.", gt=0, le=50)
    per_host: int = knob(2, "Requests in flight for each host.", ge=1, le=16)
    retries: int = knob(3, "Further tries after 429, 5xx, a broken connection or a cut body.", ge=0, le=10)
    backoff_s: float = knob(1.0, "First wait before a further try, doubled each time, with jitter.", ge=0)
    max_wait_s: float = knob(120.0, "A Retry-After or robots.txt delay longer than this ends the page.", gt=0)
    timeout_s: float = knob(20.0, "Time to connect, and between two pieces of a body, seconds.", gt=0)
    max_seconds: float = knob(120.0, "Time for one whole body, seconds.", gt=0)
    max_body_mb: float = knob(16.0, "A larger body, also once decompressed, is an error.", gt=0)
    max_pages: int = knob(2000, "Pages of one documentation snapshot; more is an error.", ge=1)
    max_redirects: int = knob(5, "Redirects followed within one host.", ge=0, le=20)
    robots: bool = knob(True, "Keep to robots.txt. Switch off only for hosts of your own.")
    allow_private: tuple[str, ...] = knob(
        (), "host:port of private or local addresses that may be fetched, e.g. a stand-in server."
    )
    store: Path = knob(Path("outputs/store/http"), "Stored responses; a second run asks only what is stale.")
    max_age_h: float = knob(24.0, "A stored response younger than this is used without asking.", ge=0)
    langchain_docs: str = knob(
        "https://docs.langchain.com/oss/python/integrations/tools", "LangChain's index of tools."
    )
    crewai_docs: str = knob("https://docs.crewai.com/en/tools/overview", "CrewAI's overview of tools.")
    crewai_specs: str = knob(
        "https://raw.githubusercontent.com/crewAIInc/crewAI/main/lib/crewai-tools/tool.specs.json",
        "CrewAI's own specification file.",
    )
    n8n_verified: str = knob("https://api.n8n.io/api/community-nodes", "n8n's list of verified nodes.")
    npm_search: bool = knob(
        False, "Discovery also asks the registry of the user's npm configuration for community packages."
    )


class ModelSettings(Section):
    """Where weights are kept and from where they may come."""

    dir: Path | None = knob(None, "Weights store; none = the user's cache folder.")
    use_hub: bool = knob(True, "Try the Hugging Face Hub first.")
    use_packages: bool = knob(True, "Else take the bytes from packages that carry them.")
    local: dict[str, Path] = knob({}, "Model name to a path the user gives; tried last.")
    hub_timeout_s: float = knob(5.0, "Time to wait for the Hub before going on, seconds.", gt=0)


class ReliabilitySettings(Section):
    """Metadata reliability (Eq. 4-5)."""

    encoder: str = Field("all-MiniLM-L6-v2", description="SBERT of Eq. 4 (paper, Section 2).")
    weights: tuple[float, float, float] = Field((0.5, 0.3, 0.2), description="lambda of Eq. 5 (Section 4.1).")
    source_weights: Literal["listing", "literal"] = Field(
        "listing", description="listing: n8n's own nodes are an official listing, 1.0; literal: all n8n 0.8."
    )
    quality_weights: tuple[float, float] = Field((0.6, 0.4), description="z_desc, z_tag (Section 3.3).")
    threshold: Fraction = Field(0.8, description="Reliable from here on (Section 2).")

    @field_validator("weights", "quality_weights")
    @classmethod
    def _whole(cls, weights: tuple[float, ...]) -> tuple[float, ...]:
        whole(weights, "weights")
        return weights


class LLMSettings(Section):
    """The engine that generates and verifies."""

    engine: Literal["vllm", "server", "embedded"] = Field("vllm", description="Paper profile: vLLM.")
    model: str = Field("google/gemma-3-1b-it", description="Generator and verifier (paper, Section 2).")
    base_url: str | None = knob(None, "OpenAI-compatible endpoint of the server engine.")
    base_urls: tuple[str, ...] = knob((), "Several endpoints of one model; requests are spread over them.")
    api_key_env: str = knob("ECOAGENT_API_KEY", "Environment variable that holds the endpoint's key.")
    store: Path = knob(Path("outputs/store/responses.sqlite"), "Stored responses, shared by runs.")
    reference: str | None = Field(
        None, description="Published responses to replay: a Parquet file, or 'shipped'; none = all live."
    )
    concurrency: int = knob(4, "Requests in flight, at each server.", ge=1, le=4096)
    threads: int | None = knob(None, "CPU threads of the embedded engine; none = all cores.", ge=1, le=1024)
    context: int = knob(2048, "Context length per sequence, tokens.", ge=256)
    timeout_s: float = knob(300.0, "Limit of one request, seconds.", gt=0)
    retries: int = knob(3, "Further tries of a failed request.", ge=0, le=100)
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field(
        "bfloat16", description="Number format of the weights (vLLM)."
    )
    tensor_parallel: int = knob(1, "GPUs per replica (vLLM).", ge=1, le=1024)
    data_parallel: int = knob(
        1, "Replicas, each a process with tensor_parallel GPUs of its own (vLLM).", ge=1, le=1024
    )
    gpu_memory_utilization: float = knob(0.9, "Share of GPU memory (vLLM).", gt=0, le=1)
    price_in: float | None = knob(None, "US dollars per million prompt tokens, where they cost.", ge=0)
    price_out: float | None = knob(None, "US dollars per million generated tokens.", ge=0)

    @field_validator("reference", mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        """``--set llm.reference=none`` takes a profile's reference away."""
        return None if value in ("none", "") else value


class SynthesisSettings(Section):
    """EcoAgent-Syn."""

    tools_per_catalog: int | None = Field(None, description="Tools to generate for; none = all.", ge=1)
    queries_per_tool: int = Field(12, ge=1, description="Lines asked for per tool, over the intents.")
    min_queries_per_tool: int = Field(10, ge=1, description="Paper, Section 2: 10-20 queries a tool.")
    max_queries_per_tool: int = Field(20, ge=1, description="Paper, Section 2: 10-20 queries a tool.")
    intents: tuple[Literal["direct", "troubleshooting", "howto"], ...] = Field(
        ("direct", "troubleshooting", "howto"), description="Figure 2, requirement 2; one intent a prompt."
    )
    min_words: int = Field(5, ge=1, description="Figure 2, requirement 1.")
    max_words: int = Field(120, ge=1, description="Figure 2, requirement 1.")
    jaccard: Fraction = Field(0.7, description="Near-duplicates above this are removed (Section 2).")
    verbatim_words: int = Field(6, ge=2, description="A run of this many words of the description is a copy.")
    max_name_leak: Fraction = Field(
        0.3,
        description="Largest share of a tool's queries that name the tool, as its lines are accepted.",
    )
    temperature: float = Field(0.8, ge=0, le=2, description="Not given in the paper; servers take 0 to 2.")
    top_p: float = Field(0.95, gt=0, le=1, description="Not given in the paper.")
    max_tokens: int = Field(320, ge=16, description="Limit of one response.")
    max_attempts: int = Field(
        3,
        ge=1,
        description="Seeds tried per tool and intent while too few of its lines pass the line filters; round "
        "trip and deduplication against other tools come later and lead to no further try.",
    )
    live_per_catalog: int = Field(
        0, ge=0, description="Tools per catalog generated anew although llm.reference answers for them."
    )
    verify_queries: bool = Field(
        False, description="Ask the verifier about every query and its tool (not in the paper)."
    )
    max_round_trip_rank: int | None = Field(
        None,
        ge=1,
        description="Drop a query whose tool the encoder ranks below this; none = keep all. Applied when all "
        "lines are there: tools that fall short by it are listed, not asked again.",
    )
    min_verifier_raw: Fraction | None = Field(
        None,
        description="Drop a query the verifier scores below; none = keep all. Needs verify_queries. Applied "
        "after the last round: tools that fall short by it are listed, not asked again.",
    )
    encoder: str = Field("all-MiniLM-L6-v2", description="SBERT that mines hard negatives (Section 2).")
    hard_negatives: int = Field(1, ge=0, description="Per positive; 140,244 negatives for 70,122 positives.")
    random_negatives: int = Field(1, ge=0, description="Per positive; see hard_negatives.")
    false_negative_margin: Fraction = Field(
        0.95, description="A negative must score below this share of the gold's cosine."
    )
    splits: tuple[float, float, float] = Field(
        (0.8, 0.1, 0.1), description="train, val, test by query; they sum to 1."
    )
    cold_fraction: Fraction = Field(0.1, description="Share of tools whose queries are the cold split.")

    _intents = field_validator("intents")(listed)

    @field_validator("max_queries_per_tool", "max_words")
    @classmethod
    def _ordered(cls, most: int, info: ValidationInfo) -> int:
        return not_below(most, info, f"min_{str(info.field_name).removeprefix('max_')}", "synthesis")

    @field_validator("splits")
    @classmethod
    def _whole(cls, shares: tuple[float, float, float]) -> tuple[float, float, float]:
        whole(shares, "shares of train, val and test")
        return shares

    @field_validator("min_verifier_raw")
    @classmethod
    def _scored(cls, least: float | None, info: ValidationInfo) -> float | None:
        if least is not None and not info.data.get("verify_queries", True):
            raise ValueError("no query is scored: set synthesis.verify_queries = true as well")
        return least


class LabelingSettings(Section):
    """EcoAgent-Real."""

    queries: Path | None = Field(
        None,
        description="JSON lines, a <set>_queries.jsonl, a ToolBench or BEIR folder, or "
        "hub:ORG/NAME[/CONFIG[/SPLIT]][@REVISION]; none = the set written for this project.",
    )
    encoder: str = Field("thenlper/gte-large", description="Candidate encoder (paper: GTE-Large).")
    top_k: int = Field(5, ge=1, description="Candidates per query (Section 2).")
    min_cosine: float = Field(0.7, ge=-1, le=1, description="Candidates below are dropped (Section 2).")
    lexical_top_k: int = Field(
        0,
        ge=0,
        description="BM25's best tools judged too, whatever their cosine; the paper has none.",
    )
    verifier_threshold: Fraction = Field(0.85, description="Functional match from here on (Section 2).")
    verifier_score: Literal["raw", "calibrated"] = Field(
        "raw", description="Which score meets the threshold."
    )
    verifier_form: Literal["score", "yes_no", "grade"] = Field(
        "score", description="Question: a written 0-1 score (paper), yes/no or digit log-probabilities."
    )
    calibration: Path | None = Field(None, description="Calibration file; none = the shipped ones.")
    verifier_max_tokens: int = Field(24, ge=1, description="Limit of one verdict.")
    max_verified: int | None = Field(None, ge=1, description="Queries verified; none = all.")
    splits: tuple[Fraction, Fraction, Fraction] = Field(
        (0.0, 0.5, 0.5), description="train, val, test by query; they sum to 1."
    )

    @field_validator("splits")
    @classmethod
    def _whole(cls, shares: tuple[float, float, float]) -> tuple[float, float, float]:
        whole(shares, "shares of train, val and test")
        return shares


class EvaluateSettings(Section):
    """Tables 1 and 2."""

    rankers: tuple[str, ...] = Field(
        (
            *("tfidf", "bm25", "ada_002", "bge_m3", "gte_large", "e5_large_v2", "dragon", "splade_v3"),
            *("bge_reranker", "toolllm", "hybrid", "rated_wo_contrastive", "rated"),
        ),
        description="Rows of the offline table: the twelve of Table 1, and a hybrid of ours.",
    )
    depth: int = Field(100, ge=10, description="Tools kept per query in offline runs; MRR is over them.")
    top_k: int = Field(10, ge=1, description="K of Section 4.1.")
    policies: tuple[str, ...] = Field(
        ("static", "blacklist", "retry", "global_mab", "rated"), description="Rows of the dynamic table."
    )
    rates: tuple[Fraction, ...] = Field((0.2, 0.3), description="rho of Section 4.2.")
    theta: tuple[Fraction, ...] = Field((0.9, 0.8), description="Recovery target per rate (Eq. 12).")
    steps: int = Field(10_000, ge=1, description="T of Section 4.2.")
    onset: int = Field(2_000, ge=0, description="Last step before the outage (Section 4.2).")
    window: int = Field(3_000, ge=1, description="Steps after onset that are averaged (Section 4.2).")
    adaptation_window: int = Field(200, ge=1, description="W of Eq. 12.")
    skip: Fraction = Field(0.10, description="Most frequent golds that never fail (Section 4.2).")
    seeds: int = Field(10, ge=1, description="Streams per cell.")
    min_golds: int = Field(100, ge=1, description="Below, the dynamic table is stamped underpowered.")
    alpha: float = Field(0.1, ge=0, description="Exploration (Section 4.1).")
    gamma: float = Field(0.95, gt=0, le=1, description="Discount (Section 4.1).")
    fusion: tuple[float, float, float] = Field((0.75, 0.15, 0.10), description="w of Eq. 9 (Section 4.1).")
    retry: int = Field(3, ge=1, description="k of the Retry baseline (Section 4.3).")

    _rows = field_validator("rankers", "policies")(listed)


class AuditSettings(Section):
    """The release gate."""

    min_tools: int = Field(1, ge=1, description="Fewer kept tools fail the gate.")
    min_queries: int = Field(1, ge=1, description="Fewer accepted Syn queries fail the gate.")


class PublishSettings(Section):
    """The data set in Hub layout."""

    licence_policy: Literal["publish", "withhold", "all"] = Field(
        "publish", description="publish: open licences only; withhold: others without text; all: everything."
    )
    rows_per_shard: int = Field(100_000, ge=1, description="Rows per Parquet shard.")
    repo_id: str | None = Field(None, description="Name on the Hub, for the card.")

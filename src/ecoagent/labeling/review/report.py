"""What a review found: the content of ``out/results/review.json``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from ecoagent.labeling.review.sample import SetName, Stratum
from ecoagent.runs import read_json
from ecoagent.schema import Record
from ecoagent.settings import UserError

REVIEW_FILE = "review.json"
REVIEW_VERSION = 1
Kind = Literal["human", "model"]


class Rate(Record):
    """A share with its 95% interval (Wilson); all none where there was nothing to count."""

    share: float | None = None
    low: float | None = None
    high: float | None = None
    pairs: int = Field(default=0, description="Judged pairs it is a share of.")


class Rates(Record):
    """Agreement and errors over some pairs, each pair standing for those of the run it was drawn for."""

    population: int = Field(description="Pairs of the run these stand for.")
    judged: int = Field(description="Pairs with a judgement, unsure ones among them.")
    decided: int = Field(description="Pairs judged yes or no: what the rates are of.")
    right: int = Field(description="Pairs judged yes.")
    unsure: Rate = Field(description="Share of judged pairs left unsure; of the sample, not weighted.")
    agreement: Rate = Field(description="Judge and labeller say the same.")
    kappa: float | None = Field(
        description="Cohen's kappa, weighted; none where the labeller says one thing only."
    )
    false_discovery: Rate = Field(description="Of the pairs kept, share judged wrong.")
    false_omission: Rate = Field(description="Of the pairs rejected, share judged right.")
    false_positive: Rate = Field(
        description="Of the pairs judged wrong, share kept; nothing where all were kept or all rejected."
    )
    false_negative: Rate = Field(
        description="Of the pairs judged right, share rejected; nothing where all were kept or all rejected."
    )


class Group(Record):
    """Rates of a part of the pairs."""

    by: Literal["band", "kind", "retriever", "stratum"]
    name: str
    rates: Rates


class SetScore(Record):
    """Rates of one set, by one judge or by all judges of a kind."""

    set: SetName
    rates: Rates = Field(description="Weighted back to the run's pairs.")
    sample_agreement: Rate = Field(description="Agreement over the sample as drawn, near pairs oversampled.")
    sample_kappa: float | None = Field(description="Cohen's kappa over the sample as drawn.")
    covered: float = Field(description="Share of the run's pairs in bands with a decided pair.")
    groups: list[Group]


class JudgeScore(Record):
    """One judge."""

    judge: str
    kind: Kind
    files: list[str]
    judged: int
    unsure: int
    not_judged: int = Field(description="Pairs of the sample this judge did not judge.")
    saw_verdict: int = Field(description="Judgements made with the labeller's verdict shown.")
    sets: list[SetScore]


class Headline(Record):
    """All judges of one kind: people and models never share one."""

    kind: Kind
    judges: list[str]
    split: int = Field(description="Pairs on which as many say yes as no; counted as unsure.")
    sets: list[SetScore]


class Between(Record):
    """Two judges, over the pairs both decided; both sets together."""

    first: str
    first_kind: Kind
    second: str
    second_kind: Kind
    pairs: int
    agreement: Rate
    kappa: float | None


class Disagreement(Record):
    """A pair on which a judge and the labeller differ."""

    id: str
    set: SetName
    query_id: str
    tool_id: str
    kept: bool
    score: float | None
    judge: str
    kind: Kind
    answer: str
    note: str


class ReviewReport(Record):
    """A scored review."""

    version: int = REVIEW_VERSION
    run: str
    sample: str = Field(description="Digest of the sample.")
    labels: dict[str, str] = Field(description="Digests of the labels that were judged.")
    seed: int
    drawn: int
    decides_by: str
    threshold: float
    margin: float
    strata: list[Stratum]
    left_out: dict[str, dict[str, int]]
    headlines: list[Headline] = Field(description="human first.")
    judges: list[JudgeScore]
    between: list[Between]
    disagreements: list[Disagreement]

    def to_json(self) -> dict[str, Any]:
        """As written."""
        return self.model_dump(mode="json")

    def rows(self) -> list[dict[str, Any]]:
        """The headlines as rows, for tables."""
        return [
            {
                "judged by": headline.kind,
                "set": score.set,
                "pairs": score.rates.judged,
                "agreement": rate_text(score.rates.agreement),
                "kappa": score.rates.kappa,
                "kept, wrong": rate_text(score.rates.false_discovery),
                "rejected, right": rate_text(score.rates.false_omission),
                "false positives": rate_text(score.rates.false_positive),
                "false negatives": rate_text(score.rates.false_negative),
                "unsure": rate_text(score.rates.unsure),
            }
            for headline in self.headlines
            for score in headline.sets
        ]


def rate_text(rate: Rate) -> str:
    """``12.5% (3.5-36.0)``; ``n/a`` where there is nothing to count."""
    if rate.share is None or rate.low is None or rate.high is None:
        return "n/a"
    return f"{100 * rate.share:.1f}% ({100 * rate.low:.1f}-{100 * rate.high:.1f})"


def load_review(out: Path) -> ReviewReport | None:
    """The scored review of a run's ``out`` folder; none if there is none.

    Raises:
        UserError: the file is none of ours, or of another version.
    """
    path = out / "results" / REVIEW_FILE
    if not path.is_file():
        return None
    try:
        report = ReviewReport.model_validate(read_json(path))
    except (ValidationError, ValueError) as error:
        raise UserError(
            f"{path} is no scored review of this release",
            remedy="score it again with `ecoagent review score`",
        ) from error
    return report

"""Review of the labels by people (or by a model, which is always said): sample, page, scores."""

from ecoagent.labeling.review.files import DEFAULT_FOLDER, load_sample, write_sample
from ecoagent.labeling.review.judgements import Judgement, JudgementFile, read_judgements
from ecoagent.labeling.review.page import render_page
from ecoagent.labeling.review.pairs import labels_digest, read_pairs
from ecoagent.labeling.review.report import REVIEW_FILE, ReviewReport, load_review
from ecoagent.labeling.review.sample import ReviewItem, Sample, draw_sample
from ecoagent.labeling.review.score import score

__all__ = [
    "DEFAULT_FOLDER",
    "REVIEW_FILE",
    "Judgement",
    "JudgementFile",
    "ReviewItem",
    "ReviewReport",
    "Sample",
    "draw_sample",
    "labels_digest",
    "load_review",
    "load_sample",
    "read_judgements",
    "read_pairs",
    "render_page",
    "score",
    "write_sample",
]

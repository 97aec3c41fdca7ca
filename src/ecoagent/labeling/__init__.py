"""EcoAgent-Real: requests, candidates, the verifier, its calibration, and what the chain yields."""

from ecoagent.labeling.calibrate import (
    Calibration,
    LabelledPair,
    auc,
    find_calibration,
    fit_calibration,
    load_calibrations,
)
from ecoagent.labeling.candidates import CandidatePair, Candidates, find_candidates
from ecoagent.labeling.requests import OWN_SET, Request, RequestSet, load_requests, query_type_of
from ecoagent.labeling.stage import LabelStage
from ecoagent.labeling.verify import FORMS, Form, Judged, ToolCard, read_answer, verify_pairs

__all__ = [
    "FORMS",
    "OWN_SET",
    "Calibration",
    "CandidatePair",
    "Candidates",
    "Form",
    "Judged",
    "LabelStage",
    "LabelledPair",
    "Request",
    "RequestSet",
    "ToolCard",
    "auc",
    "find_calibration",
    "find_candidates",
    "fit_calibration",
    "load_calibrations",
    "load_requests",
    "query_type_of",
    "read_answer",
    "verify_pairs",
]

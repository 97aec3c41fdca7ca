"""Profiles, settings and the errors a user sees."""

from ecoagent.settings.baselines import BaselineSettings, LexicalAnalysis
from ecoagent.settings.errors import GateError, MissingInputError, UserError
from ecoagent.settings.feedback import FeedbackSettings
from ecoagent.settings.indexing import IndexSettings
from ecoagent.settings.loading import (
    Settings,
    known_keys,
    load_settings,
    profile_names,
    read_profile,
    result_settings,
)
from ecoagent.settings.quiet import quiet_environment
from ecoagent.settings.sections import (
    AuditSettings,
    CrawlSettings,
    EvaluateSettings,
    FlowSettings,
    HttpSettings,
    LabelingSettings,
    LLMSettings,
    ModelSettings,
    PublishSettings,
    ReliabilitySettings,
    SynthesisSettings,
)
from ecoagent.settings.siamese import SiameseSettings
from ecoagent.settings.training import TrainSettings

__all__ = [
    "AuditSettings",
    "BaselineSettings",
    "CrawlSettings",
    "EvaluateSettings",
    "FeedbackSettings",
    "FlowSettings",
    "GateError",
    "HttpSettings",
    "IndexSettings",
    "LLMSettings",
    "LabelingSettings",
    "LexicalAnalysis",
    "MissingInputError",
    "ModelSettings",
    "PublishSettings",
    "ReliabilitySettings",
    "Settings",
    "SiameseSettings",
    "SynthesisSettings",
    "TrainSettings",
    "UserError",
    "known_keys",
    "load_settings",
    "profile_names",
    "quiet_environment",
    "read_profile",
    "result_settings",
]

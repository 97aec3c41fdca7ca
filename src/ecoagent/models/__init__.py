"""The weights store: model files by name, pinned by sha256, from the Hub, packages or a given path."""

from ecoagent.models.hub import hub_fault
from ecoagent.models.sources import ModelSource, find_model, known_models
from ecoagent.models.store import ModelStatus, ModelStore, default_store_dir

__all__ = [
    "ModelSource",
    "ModelStatus",
    "ModelStore",
    "default_store_dir",
    "find_model",
    "hub_fault",
    "known_models",
]

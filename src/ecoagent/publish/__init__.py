"""A run as a data set in Hub layout: licence policy, Parquet shards, card, refill of withheld text."""

from ecoagent.publish.card import by_source, queries_by_source, render_card, write_card
from ecoagent.publish.deviations import Deviation, ModelRole, deviations, model_roles
from ecoagent.publish.layout import CONFIGS, verify_dataset, write_splits
from ecoagent.publish.rehydrate import Rehydrated, rehydrate
from ecoagent.publish.selection import Selection, select
from ecoagent.publish.stage import PublishStage

__all__ = [
    "CONFIGS",
    "Deviation",
    "ModelRole",
    "PublishStage",
    "Rehydrated",
    "Selection",
    "by_source",
    "deviations",
    "model_roles",
    "queries_by_source",
    "rehydrate",
    "render_card",
    "select",
    "verify_dataset",
    "write_card",
    "write_splits",
]

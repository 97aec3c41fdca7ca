"""RATED: the bandit, the fusion of scores and the selection policies."""

from ecoagent.rated.errors import BanditError
from ecoagent.rated.fusion import FUSION_WEIGHTS, fuse
from ecoagent.rated.linucb import DiscountedLinUCB
from ecoagent.rated.policies import (
    POLICIES,
    BlacklistPolicy,
    GlobalMabPolicy,
    Policy,
    PolicyContext,
    PolicySpec,
    RatedPolicy,
    RetryPolicy,
    StaticPolicy,
    policy_spec,
)

__all__ = [
    "FUSION_WEIGHTS",
    "POLICIES",
    "BanditError",
    "BlacklistPolicy",
    "DiscountedLinUCB",
    "GlobalMabPolicy",
    "Policy",
    "PolicyContext",
    "PolicySpec",
    "RatedPolicy",
    "RetryPolicy",
    "StaticPolicy",
    "fuse",
    "policy_spec",
]

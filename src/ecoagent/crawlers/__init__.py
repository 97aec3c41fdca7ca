"""Catalog crawlers: pinned artifacts in, one table of tools out. Crawled code is read, never run
outside the sandbox."""

from ecoagent.crawlers.artifacts import ArtifactStore, HashMismatchError, verify
from ecoagent.crawlers.catalogs import PARSERS, parse_artifact
from ecoagent.crawlers.client import ClientMissingError, FetchError
from ecoagent.crawlers.digests import DigestReport, check_digests
from ecoagent.crawlers.joining import Joiner, join
from ecoagent.crawlers.language import detect_language
from ecoagent.crawlers.lock import Lock, LockEntry, load_lock, selected
from ecoagent.crawlers.normalize import Normalized, normalize, provider_of
from ecoagent.crawlers.normalize_stage import NormalizeStage
from ecoagent.crawlers.pinning import Pin, Pinned, pin_all
from ecoagent.crawlers.records import PARSER_VERSION
from ecoagent.crawlers.stage import CrawlStage, candidate_files, iter_candidates, load_candidates

__all__ = [
    "PARSERS",
    "PARSER_VERSION",
    "ArtifactStore",
    "ClientMissingError",
    "CrawlStage",
    "DigestReport",
    "FetchError",
    "HashMismatchError",
    "Joiner",
    "Lock",
    "LockEntry",
    "NormalizeStage",
    "Normalized",
    "Pin",
    "Pinned",
    "candidate_files",
    "check_digests",
    "detect_language",
    "iter_candidates",
    "join",
    "load_candidates",
    "load_lock",
    "normalize",
    "parse_artifact",
    "pin_all",
    "provider_of",
    "selected",
    "verify",
]

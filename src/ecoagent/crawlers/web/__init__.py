"""Documentation pages over http: a polite and safe client, and what is read with it."""

from ecoagent.crawlers.web.client import Page, PoliteClient
from ecoagent.crawlers.web.errors import REASONS, WebError, scrub
from ecoagent.crawlers.web.probe import Probe
from ecoagent.crawlers.web.store import ResponseStore
from ecoagent.crawlers.web.transport import Counts

__all__ = ["REASONS", "Counts", "Page", "PoliteClient", "Probe", "ResponseStore", "WebError", "scrub"]

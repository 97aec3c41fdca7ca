"""One protocol with three engines (vLLM, any OpenAI-compatible server, llama.cpp in process), stored."""

from ecoagent.llm.balance import ServerRecord
from ecoagent.llm.cost import CostEstimate, answered_by_reference, estimate_cost
from ecoagent.llm.embedded import EmbeddedEngine
from ecoagent.llm.engine import EngineCounters, StoredEngine
from ecoagent.llm.opening import close_engines, counters_of, engine_record, make_engine, open_engine
from ecoagent.llm.protocol import (
    AsksModel,
    Engine,
    GenerationRequest,
    GenerationResponse,
    Message,
    Sampling,
    error_response,
    request_hash,
    to_response_row,
)
from ecoagent.llm.reference import ReferenceResponses, open_reference, reference_folder, write_reference
from ecoagent.llm.replicas import VllmReplicas
from ecoagent.llm.server import ServerEngine
from ecoagent.llm.store import ResponseStore
from ecoagent.llm.turns import take_turns
from ecoagent.llm.unanswered import unanswered_first
from ecoagent.llm.vllm import VllmEngine

__all__ = [
    "AsksModel",
    "CostEstimate",
    "EmbeddedEngine",
    "Engine",
    "EngineCounters",
    "GenerationRequest",
    "GenerationResponse",
    "Message",
    "ReferenceResponses",
    "ResponseStore",
    "Sampling",
    "ServerEngine",
    "ServerRecord",
    "StoredEngine",
    "VllmEngine",
    "VllmReplicas",
    "answered_by_reference",
    "close_engines",
    "counters_of",
    "engine_record",
    "error_response",
    "estimate_cost",
    "make_engine",
    "open_engine",
    "open_reference",
    "reference_folder",
    "request_hash",
    "take_turns",
    "to_response_row",
    "unanswered_first",
    "write_reference",
]

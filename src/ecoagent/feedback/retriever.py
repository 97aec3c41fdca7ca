"""The retriever that is told the iteration: ``Iteration t`` stands before q_t."""

from __future__ import annotations

from collections.abc import Sequence

from ecoagent.retrieval import Embeddings, Encoder, RankedRun, TextSet, rank_vectors


def with_iteration(text: str, iteration: int) -> str:
    """q_t as the retriever reads it; the mark is plain words, which every tokenizer has."""
    return f"Iteration {iteration}: {text}"


class IterationRetriever:
    """Searches all tools of a run; their vectors are made once.

    Attributes:
        encoder: f_Q and f_T.
        tools: every tool that may be found, with its tool_text.
    """

    def __init__(self, encoder: Encoder, tools: TextSet, *, name: str = "feedback") -> None:
        self.encoder, self.tools, self.name = encoder, tools, name
        self._vectors: Embeddings | None = None

    @property
    def tool_vectors(self) -> Embeddings:
        """(tools, d) vectors, rows of length 1."""
        if self._vectors is None:
            self._vectors = self.encoder.encode_documents(self.tools.texts)
        return self._vectors

    def search(self, ids: Sequence[str], texts: Sequence[str], iteration: int, k: int) -> RankedRun:
        """The ``k`` best tools of each query q_t by S_sem."""
        vectors = self.encoder.encode_queries([with_iteration(text, iteration) for text in texts])
        return rank_vectors(vectors, self.tool_vectors, tuple(ids), self.tools.ids, k, name=self.name)

"""EcoAgent: rebuild the tool-retrieval benchmark from the live catalogs and judge RATED on it."""

__version__ = "0.1.0"

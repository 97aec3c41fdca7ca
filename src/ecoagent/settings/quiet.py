"""Offline, quiet environment for the libraries of the stack; call before importing them."""

from __future__ import annotations

import logging
import os
from pathlib import Path


def quiet_environment(prefect_home: Path | None = None) -> None:
    """Turn off telemetry, version checks and progress bars; keep Prefect's files in ``prefect_home``.

    Prefect's result storage and memo store do not follow ``PREFECT_HOME`` by themselves (3.7.7).
    Values the user has set are kept, but for Prefect's home.
    """
    if prefect_home is not None:
        home = prefect_home.resolve()
        os.environ["PREFECT_HOME"] = str(home)
        os.environ["PREFECT_RESULTS_LOCAL_STORAGE_PATH"] = str(home / "storage")
        os.environ["PREFECT_SERVER_MEMO_STORE_PATH"] = str(home / "memo_store.toml")
    for name, value in {
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_CLIENT_SERVER_VERSION_CHECK_ENABLED": "false",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_CLI_PROMPT": "false",
        "GX_ANALYTICS_ENABLED": "false",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        # Idle OpenMP threads that spin slow training many times over where the cores are shared.
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
    }.items():
        os.environ.setdefault(name, value)
    for name in ("bm25s", "great_expectations"):
        logging.getLogger(name).setLevel(logging.WARNING)

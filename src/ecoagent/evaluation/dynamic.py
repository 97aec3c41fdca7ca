"""The table of policies under failing tools (Table 2 of the paper), from a stored run of a ranker.

Every policy sees the same streams, candidates and outages, one a seed; differences are paired by seed.
Results hold no times: equal inputs give equal bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ecoagent.evaluation.significance import Interval, Summary, paired_interval, summarize
from ecoagent.evaluation.simulator import PermanentOutage, SimulationLog, binned, simulate
from ecoagent.evaluation.stream import Stream, StreamSource, failing_tools
from ecoagent.metrics import adaptation_steps, fault_selection_rate, post_fail_success_rate
from ecoagent.rated import Policy, PolicyContext, policy_spec
from ecoagent.settings import EvaluateSettings, UserError

REFERENCE = "rated"
"""The policy that the others are compared with."""

BIN_STEPS = 100
"""Steps per point of the curves."""


@dataclass(frozen=True)
class Adaptation:
    """Steps to recovery (Eq. 12) over seeds; None = not recovered ("Failed")."""

    steps: tuple[int | None, ...]
    failed_share: float
    median: float | None
    """Over the seeds that recovered."""


@dataclass(frozen=True)
class Curve:
    """Rates per bin of steps, means over seeds, before and after onset."""

    bin_steps: int
    success: tuple[float, ...]
    fault: tuple[float, ...]


@dataclass(frozen=True)
class DynamicRow:
    """One policy at one failure rate. Rates are shares in [0, 1]; windows are counted from onset."""

    policy: str
    label: str
    rate: float
    scenario: str
    protocol: str
    ranker: str
    split: str
    seeds: int
    steps: int
    onset: int
    window: int
    queries: int
    """Queries of the split the streams are drawn from."""
    distinct_golds: int
    """Distinct gold tools of a stream, the smallest over seeds."""
    failing: int
    """Tools that fail, the smallest number over seeds."""
    underpowered: bool
    """Fewer distinct golds than the settings ask for: differences mean little."""
    success_before: Summary
    """Success rate before onset."""
    success_rate: Summary
    """Post-Fail SR (Eq. 10) over the window."""
    fault_rate: Summary
    """FSR (Eq. 11) over the window, of the first execution of each step."""
    executions: Summary
    """Executions per step over the window."""
    success_rate_to_end: Summary
    fault_rate_to_end: Summary
    theta: float
    adaptation_window: int
    adaptation: Adaptation
    """Trailing windows, as in the paper."""
    adaptation_forward: Adaptation
    """Forward windows, as in the released code, toward the same target."""
    reference: str | None
    """Policy the differences are taken to; None if it is not among the rows."""
    success_difference: Interval | None
    """Success rate minus the reference's, paired by seed, 95%."""
    fault_difference: Interval | None
    """Fault rate minus the reference's, paired by seed, 95%."""
    curve: Curve

    def as_json(self) -> dict[str, Any]:
        """The row as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class _Run:
    """The numbers of one simulation."""

    before: float
    success: float
    fault: float
    executions: float
    success_to_end: float
    fault_to_end: float
    trailing: int | None
    forward: int | None
    success_bins: tuple[float, ...]
    fault_bins: tuple[float, ...]


def build_policy(name: str, source: StreamSource, settings: EvaluateSettings) -> Policy:
    """A fresh policy for the tools of a source, with the settings' constants."""
    return policy_spec(name).build(
        PolicyContext(
            prior=source.prior,
            dim=source.dim,
            alpha=settings.alpha,
            gamma=settings.gamma,
            fusion=settings.fusion,
            retry=settings.retry,
        )
    )


def draw_streams(source: StreamSource, settings: EvaluateSettings, base_seed: int = 0) -> list[Stream]:
    """One stream a seed; seed ``s`` of a run with another ``base_seed`` is another stream."""
    return [Stream.draw(source, settings.steps, (base_seed, seed)) for seed in range(settings.seeds)]


def dynamic_table(
    source: StreamSource,
    settings: EvaluateSettings,
    *,
    ranker: str,
    split: str,
    base_seed: int = 0,
    on_simulation: Callable[[], None] | None = None,
) -> list[DynamicRow]:
    """A row for every rate and policy of the settings, under permanent outages.

    ``ranker`` and ``split`` name where the candidates and the queries come from and are only copied into
    the rows. ``on_simulation`` is called after each of the rates x policies x seeds simulations.

    Raises UserError if the settings do not fit together or name an unknown policy.
    """
    _check(settings)
    streams = draw_streams(source, settings, base_seed)
    distinct = min(len(stream.gold_counts) for stream in streams)
    rows: list[DynamicRow] = []
    for rate, theta in zip(settings.rates, settings.theta, strict=True):
        scenario = PermanentOutage(rate, settings.onset, settings.skip)
        failing = min(len(failing_tools(s.gold_counts, rate, settings.skip)) for s in streams)
        runs: dict[str, list[_Run]] = {}
        for name in settings.policies:
            runs[name] = []
            for seed, stream in enumerate(streams):
                log = simulate(build_policy(name, source, settings), stream, scenario, seed)
                runs[name].append(_measure(log, settings, theta))
                if on_simulation is not None:
                    on_simulation()
        baseline = runs.get(REFERENCE)
        for name, results in runs.items():
            rows.append(
                DynamicRow(
                    policy=name,
                    label=policy_spec(name).label,
                    rate=rate,
                    scenario=scenario.name,
                    protocol="paper",
                    ranker=ranker,
                    split=split,
                    seeds=settings.seeds,
                    steps=settings.steps,
                    onset=settings.onset,
                    window=settings.window,
                    queries=len(source.queries),
                    distinct_golds=distinct,
                    failing=failing,
                    underpowered=distinct < settings.min_golds,
                    success_before=summarize([r.before for r in results]),
                    success_rate=summarize([r.success for r in results]),
                    fault_rate=summarize([r.fault for r in results]),
                    executions=summarize([r.executions for r in results]),
                    success_rate_to_end=summarize([r.success_to_end for r in results]),
                    fault_rate_to_end=summarize([r.fault_to_end for r in results]),
                    theta=theta,
                    adaptation_window=settings.adaptation_window,
                    adaptation=_adaptation([r.trailing for r in results]),
                    adaptation_forward=_adaptation([r.forward for r in results]),
                    reference=REFERENCE if baseline else None,
                    success_difference=_difference(results, baseline, lambda r: r.success),
                    fault_difference=_difference(results, baseline, lambda r: r.fault),
                    curve=Curve(
                        BIN_STEPS,
                        _mean_bins([r.success_bins for r in results]),
                        _mean_bins([r.fault_bins for r in results]),
                    ),
                )
            )
    return rows


def _check(settings: EvaluateSettings) -> None:
    """UserError where the settings of the dynamic table contradict each other."""
    if len(settings.rates) != len(settings.theta):
        raise UserError(
            f"evaluate.rates has {len(settings.rates)} values and evaluate.theta {len(settings.theta)}",
            remedy="give one recovery target per rate",
        )
    if settings.onset + settings.window > settings.steps:
        raise UserError(
            f"evaluate.steps {settings.steps} is less than onset {settings.onset} + window {settings.window}",
            remedy="raise evaluate.steps or lower evaluate.window",
        )
    if settings.adaptation_window > min(settings.onset, settings.steps - settings.onset):
        raise UserError(
            f"evaluate.adaptation_window {settings.adaptation_window} does not fit before and after "
            f"onset {settings.onset} of {settings.steps} steps",
            remedy="lower evaluate.adaptation_window",
        )
    for name in settings.policies:
        policy_spec(name)


def _measure(log: SimulationLog, settings: EvaluateSettings, theta: float) -> _Run:
    onset, window = settings.onset, settings.window
    success, fault = log.success, log.fault

    def steps(form: Any) -> int | None:
        return adaptation_steps(
            success, onset=onset, window=settings.adaptation_window, theta=theta, form=form
        )

    return _Run(
        before=float(success[:onset].mean()),
        success=post_fail_success_rate(log.correct, log.up, onset=onset, window=window),
        fault=fault_selection_rate(log.first_up, onset=onset, window=window),
        executions=float(log.executions[onset : onset + window].mean()),
        success_to_end=post_fail_success_rate(log.correct, log.up, onset=onset),
        fault_to_end=fault_selection_rate(log.first_up, onset=onset),
        trailing=steps("trailing"),
        forward=steps("forward"),
        success_bins=tuple(binned(success, BIN_STEPS)),
        fault_bins=tuple(binned(fault, BIN_STEPS)),
    )


def _adaptation(steps: Sequence[int | None]) -> Adaptation:
    recovered = [value for value in steps if value is not None]
    return Adaptation(
        tuple(steps),
        1 - len(recovered) / len(steps),
        float(statistics.median(recovered)) if recovered else None,
    )


def _difference(
    results: Sequence[_Run], baseline: Sequence[_Run] | None, value: Callable[[_Run], float]
) -> Interval | None:
    """Paired difference to the reference; None without one, and for the reference itself."""
    if baseline is None or results is baseline:
        return None
    return paired_interval([value(r) for r in results], [value(r) for r in baseline])


def _mean_bins(series: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Means over seeds, rounded to what a plot can show."""
    return tuple(round(statistics.fmean(values), 6) for values in zip(*series, strict=True))

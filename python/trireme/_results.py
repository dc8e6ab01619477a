"""The answers, as values. Every field that is a quantity says its unit; ``to_dict()`` is the JSON that
the command prints."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _core
from ._build import build
from ._errors import Error

if TYPE_CHECKING:
    import pandas


def _frame(rows: list[dict[str, Any]], index: str | None = None) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError:
        raise ImportError("to_frame() needs pandas: pip install pandas") from None
    frame = pandas.DataFrame(rows)
    return frame if index is None else frame.set_index(index)


def _seconds(value: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if value >= factor:
            return f"{value / factor:.3f} {unit}"
    return f"{value * 1e6:.1f} us"


def _gib(value: float) -> str:
    return f"{value / 2**30:.2f} GiB"


@dataclass(frozen=True, repr=False)
class Plan:
    """Every choice that a training run makes.

    tp, pp, cp, dp: tensor-, pipeline-, context- and data-parallel degrees; dp is dp_replicate x dp_shard.
    gpus: tp x pp x cp x dp. virtual_stages: chunks of layers per pipeline rank.
    microbatch: sequences. batch: sequences per step, of all replicas. seq: tokens of a sequence.
    schedule: gpipe, 1f1b, interleaved, zb-h1 or zb-h2. recompute: none, selective or full; recompute_layers: only so many
    layers of every virtual stage, 0 for all. state_sharding: none, optimizer, gradients or parameters.
    layers: number of layers of every chunk of every stage.
    text: the plan file, as ``trireme compile`` and ``trireme export`` read it.
    """

    text: str
    summary: str
    model: str
    stack: str
    tp: int
    pp: int
    cp: int
    dp: int
    dp_replicate: int
    dp_shard: int
    virtual_stages: int
    microbatch: int
    schedule: str
    recompute: str
    recompute_layers: int
    state_sharding: str
    sequence_parallel: bool
    scatter_gather: bool
    overlap_reductions: bool
    rank_order: str
    vocab_multiple: int
    layers: tuple[tuple[int, ...], ...]
    gpus: int
    batch: int
    seq: int
    precision: str

    @classmethod
    def parse(cls, text: str, name: str = "plan") -> Plan:
        """The plan that a file says; ``name`` stands in messages. Raises :class:`Error`."""
        code, message, answer, _ = _core.describe_plan(text, name)
        if code != "ok":
            raise Error(message, code)
        return build(cls, json.loads(answer))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """The plan in a file. Raises :class:`Error` or :class:`OSError`."""
        with open(path, encoding="utf-8") as file:
            try:
                text = file.read()
            except UnicodeDecodeError as error:
                message = f"{os.fspath(path)}: is not a plan: byte {error.start} is not UTF-8"
                raise Error(message, "invalid argument") from None
        return cls.parse(text, os.fspath(path))

    @classmethod
    def _from_text(cls, text: str) -> Plan:
        return cls.parse(text)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the plan file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.text)

    def __repr__(self) -> str:
        return f"<Plan {self.gpus} GPUs: {self.summary}>"

    def _row(self) -> dict[str, Any]:
        names = ["gpus", "tp", "pp", "cp", "dp", "microbatch", "schedule", "virtual_stages"]
        names += ["recompute", "state_sharding", "sequence_parallel"]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, repr=False)
class Estimate:
    """What a step takes.

    step_seconds: of one step; interval_seconds holds nine of ten runs like those compared, and
    interval_of_others_seconds of those of others, where the stack says.
    breakdown_seconds: parts that add up to the step; breakdown_percent: of it.
    memory_bytes: parts, of the fullest device, on pipeline stage memory_stage (from 0). memory_tight: the plan
    fits by less than predicted peaks are off. headroom_bytes: kept free beside memory_available_bytes.
    model_flops_utilisation: 0 to 1.
    """

    step_seconds: float
    tokens_per_second: float
    model_flops_utilisation: float
    breakdown_seconds: dict[str, float]
    breakdown_percent: dict[str, float]
    memory_bytes: dict[str, int]
    memory_total_bytes: int
    memory_available_bytes: int
    headroom_bytes: int
    memory_tight: bool
    memory_stage: int
    interval_seconds: tuple[float, float] | None = None
    interval_of_others_seconds: tuple[float, float] | None = None

    def __repr__(self) -> str:
        return (
            f"<Estimate {_seconds(self.step_seconds)}, {self.tokens_per_second:.0f} tokens/s, "
            f"MFU {100 * self.model_flops_utilisation:.1f} %, {_gib(self.memory_total_bytes)} of "
            f"{_gib(self.memory_available_bytes)}>"
        )

    def to_frame(self) -> pandas.DataFrame:
        """The breakdown: one row per part, with seconds and percent of the step."""
        return _frame(
            [
                {"part": part, "seconds": seconds, "percent": self.breakdown_percent[part]}
                for part, seconds in self.breakdown_seconds.items()
            ],
            "part",
        )

    def memory_to_frame(self) -> pandas.DataFrame:
        """The memory of the fullest device: one row per part, in bytes."""
        return _frame([{"part": k, "bytes": v} for k, v in self.memory_bytes.items()], "part")


@dataclass(frozen=True)
class RunnerUp:
    """The best plan of other degrees: slower_seconds behind the winner, most of it in the part lost_by. simulated_seconds: its step, played task by task."""

    plan: Plan
    summary: str
    estimate: Estimate
    slower_seconds: float
    lost_by: str
    lost_by_seconds: float
    simulated_seconds: float | None = None


@dataclass(frozen=True)
class Rejection:
    """A degree that no plan can use, and the rule that forbids it."""

    rule: str
    subject: str
    needed: str
    available: str


@dataclass(frozen=True)
class AllCuts:
    """No plan is faster than bound_seconds, whatever the chunks of its stages."""

    bound_seconds: float
    gap: float


@dataclass(frozen=True)
class Certificate:
    """What was proved: no plan of the space is faster than bound_seconds; gap 0 says that this is the winner, more that cuts of the layers that were not costed may be faster by as much. of_even_chunks: that is said of those cuts whose chunks on a stage differ by one layer at most. plan_is_beyond: the winner is none of these. all_cuts: of Trireme's own programs, what is proved of all cuts where it is less; None if it is not, or, of other stacks, if nothing is known of the others."""

    bound_seconds: float
    gap: float
    of_even_chunks: bool
    plan_is_beyond: bool
    all_cuts: AllCuts | None
    groups: int
    bounded: int
    costed: int
    pruned: dict[str, int]


@dataclass(frozen=True)
class Nearest:
    """The faster plan that misses least memory."""

    plan: Plan
    step_seconds: float
    missing_bytes: int


@dataclass(frozen=True)
class Limit:
    """Something without which a plan would be faster: kind memory, pin or rule; what names it."""

    kind: str
    what: str | None = None
    plan: Plan | None = None
    step_seconds: float | None = None
    missing_bytes: int | None = None
    nearest: Nearest | None = None


@dataclass(frozen=True)
class Sensitivity:
    """The best plan after one change; gain is that of tokens/s (0.05: 5 %); missing_bytes: what today's plan lacks there."""

    change: str
    plan: Plan
    same_plan: bool
    step_seconds: float
    tokens_per_second: float
    gain: float
    missing_bytes: int


@dataclass(frozen=True)
class Outlook:
    """What keeps a faster plan out, and what would change the answer."""

    binding: tuple[Limit, ...]
    sensitivities: tuple[Sensitivity, ...]


@dataclass(frozen=True)
class Phase:
    """A part of the critical path; of a split backward the gradients of weights apart."""

    phase: str
    stages: tuple[int, ...]
    seconds: float
    percent: float
    forward_passes: int
    backward_passes: int
    forward_seconds: float
    backward_seconds: float
    weights_passes: int
    weights_seconds: float
    tensor_parallel_seconds: float
    transfer_seconds: float


@dataclass(frozen=True)
class CriticalPath:
    """What the simulated step waits for, from its begin to its end."""

    simulated_seconds: float
    estimated_seconds: float
    phases: tuple[Phase, ...]


@dataclass(frozen=True)
class _Answer:
    raw: dict[str, Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The JSON of the command, in SI units, with keys in lowerCamelCase."""
        return copy.deepcopy(self.raw)


@dataclass(frozen=True, repr=False)
class Search(_Answer):
    """The fastest plan, what was proved about it, and which others lost.

    gpus_used of gpus_available; idle_because says why not all, partly_filled how they lie on hosts or
    racks that they do not fill. search_seconds: that the search took.
    """

    plan: Plan
    summary: str
    estimate: Estimate
    gpus_used: int
    gpus_available: int
    runners_up: tuple[RunnerUp, ...]
    rejections: tuple[Rejection, ...]
    certificate: Certificate
    search_seconds: float
    idle_because: str = ""
    partly_filled: str = ""

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {_seconds(self.estimate.step_seconds)} on {self.gpus_used} GPUs: "
            f"{self.summary}>"
        )

    def to_frame(self) -> pandas.DataFrame:
        """The winner and the runners-up, fastest first: choices, step in seconds, tokens/s, memory in bytes."""
        rows = []
        for plan, e in [(self.plan, self.estimate)] + [(r.plan, r.estimate) for r in self.runners_up]:
            rows.append(
                plan._row()
                | {
                    "step_seconds": e.step_seconds,
                    "tokens_per_second": e.tokens_per_second,
                    "model_flops_utilisation": e.model_flops_utilisation,
                    "memory_bytes": e.memory_total_bytes,
                    "slower_seconds": e.step_seconds - self.estimate.step_seconds,
                }
            )
        return _frame(rows)


@dataclass(frozen=True)
class Roomier:
    """A plan that leaves memory for what its prediction may be off by."""

    plan: Plan
    summary: str
    step_seconds: float
    memory_bytes: int


@dataclass(frozen=True, repr=False)
class Recommendation(Search):
    """The answer of :func:`trireme.plan`.

    why: what every other choice would cost, a line each. stage_bytes: memory of every pipeline stage.
    simulated_seconds: the step, played task by task. outlook and critical_path: with ``explain=True``.
    roomier: if the plan's memory is tight, the fastest that is sure to fit; None if it is not, or nothing is.
    """

    why: tuple[str, ...] = ()
    stage_bytes: tuple[int, ...] = ()
    simulated_seconds: float = 0.0
    roomier: Roomier | None = None
    outlook: Outlook | None = None
    critical_path: CriticalPath | None = None


@dataclass(frozen=True)
class NearestMiss:
    """The plan that needs least memory, and how much it lacks."""

    plan: Plan
    summary: str
    estimate: Estimate
    missing_bytes: int


@dataclass(frozen=True)
class Relaxation:
    """One change after which there is a plan: kind pin, all pins, stack, devices, batch or headroom."""

    kind: str
    change: str
    devices: int
    plan: Plan
    summary: str
    estimate: Estimate


@dataclass(frozen=True)
class Shortfall(_Answer):
    """Why nothing fits, and what would: the fewest devices first."""

    fits: bool
    reason: str
    nearest: NearestMiss | None
    changes: tuple[Relaxation, ...]


@dataclass(frozen=True, repr=False)
class Price(_Answer):
    """The answer of :func:`trireme.estimate`: a plan, priced.

    missing_bytes: that the fullest device lacks, 0 if it fits. stage_bytes: memory of every pipeline stage.
    """

    plan: Plan
    summary: str
    estimate: Estimate
    stage_bytes: tuple[int, ...]
    fits: bool
    missing_bytes: int

    def __repr__(self) -> str:
        fits = "" if self.fits else f", does not fit: {_gib(self.missing_bytes)} too much"
        step = _seconds(self.estimate.step_seconds)
        return f"<{type(self).__name__} {step} on {self.plan.gpus} GPUs: {self.summary}{fits}>"

    def to_frame(self) -> pandas.DataFrame:
        """The breakdown of the step: :meth:`Estimate.to_frame`."""
        return self.estimate.to_frame()


@dataclass(frozen=True)
class Alternative:
    """One choice changed. difference_seconds: of the step, negative if faster; None if it does not fit."""

    choice: str
    chosen: str
    other: str
    line: str
    fits: bool
    plan: Plan
    difference_seconds: float | None = None
    missing_bytes: int | None = None
    rule: str | None = None


@dataclass(frozen=True, repr=False)
class Check(Price):
    """The answer of :func:`trireme.check`: a plan beside the best one.

    behind_seconds and behind_percent: of the optimum. best_change: the single change that gains most.
    no_optimum: why there is none.
    """

    best_change: Alternative | None = None
    changes: tuple[Alternative, ...] = ()
    optimum: Search | None = None
    no_optimum: str = ""
    behind_seconds: float | None = None
    behind_percent: float | None = None


@dataclass(frozen=True)
class Failures:
    """What failures do to a training. goodput: computing over wall time, 0 to 1; availability: share of
    the time in which there are enough nodes. spare_nodes: that wait; spare_nodes_bought: of those, the ones
    beyond the devices asked for, of which the plan may leave nodes idle."""

    gpu_mean_between_seconds: float
    job_mean_between_seconds: float
    save_seconds: float
    young_interval_seconds: float
    daly_interval_seconds: float
    goodput: float
    spare_nodes: int
    spare_nodes_bought: int
    availability: float


@dataclass(frozen=True)
class Point:
    """One cluster of a sweep. fits: whether it has a plan; else reason says why not. winner: a letter for
    the plan's shape, the plan without replicas.

    precision: in which it trains. inter_node_bytes_per_second: line rate of a device between nodes. seq: tokens. wall_seconds: of the whole
    training with failures, busy_seconds without. nodes_used: that have a rank of the plan. memory_tight: as of a price. energy_joules: of the devices in use.
    """

    system: str
    precision: str
    gpus: int
    inter_node_bytes_per_second: float
    batch: int
    sequence: int
    minus_nodes: int
    fits: bool
    reason: str | None = None
    plan: str | None = None
    winner: str | None = None
    shape: str | None = None
    gpus_used: int | None = None
    nodes_used: int | None = None
    step_seconds: float | None = None
    tokens_per_second: float | None = None
    model_flops_utilisation: float | None = None
    memory_bytes: int | None = None
    memory_tight: bool | None = None
    breakdown_seconds: dict[str, float] | None = None
    tokens: float | None = None
    steps: int | None = None
    busy_seconds: float | None = None
    wall_seconds: float | None = None
    usd_per_gpu_hour: float | None = None
    cost_usd: float | None = None
    on_front: bool | None = None
    energy_joules: float | None = None
    failures: Failures | None = None


@dataclass(frozen=True)
class Refinement:
    """The best number of devices, also between those that were swept. beyond: one node further, which does
    not keep to the limit. planned: numbers of devices that were planned for it."""

    point: Point
    beyond: Point | None
    planned: int


@dataclass(frozen=True)
class Deadline:
    """Which points meet it, as indices of the sweep's points. refined: the fewest devices of all;
    cheapest_refined: the cheapest of all numbers of devices, if there is a price.

    tokens, minus_nodes, usd_per_gpu_hour (None: none, or each its own), gpu_mean_between_seconds: of the points
    that were compared.
    """

    seconds: float
    tokens: float
    minus_nodes: int
    fewest_devices: int | None
    cheapest: int | None
    refined: Refinement | None = None
    cheapest_refined: Refinement | None = None
    usd_per_gpu_hour: float | None = None
    gpu_mean_between_seconds: float | None = None


@dataclass(frozen=True)
class Budget:
    """The fastest point for the money, as an index of the sweep's points. refined: of all numbers of devices.
    The other fields are those of :class:`Deadline`."""

    usd: float
    tokens: float
    minus_nodes: int
    fastest: int | None
    refined: Refinement | None = None
    usd_per_gpu_hour: float | None = None
    gpu_mean_between_seconds: float | None = None


@dataclass(frozen=True, repr=False)
class Sweep(_Answer):
    """The answer of :func:`trireme.whatif`."""

    model: str
    stack: str
    points: tuple[Point, ...]
    deadlines: tuple[Deadline, ...] = ()
    budgets: tuple[Budget, ...] = ()

    def __repr__(self) -> str:
        return f"<Sweep of {self.model}, stack {self.stack}: {len(self.points)} points>"

    def to_frame(self) -> pandas.DataFrame:
        """One row per point. Columns are the fields of :class:`Point` and :class:`Failures`; parts of
        the breakdown are columns of their own, such as ``bubble_seconds``."""
        rows = []
        for point in self.points:
            row = {k: v for k, v in vars(point).items() if k not in ("breakdown_seconds", "failures")}
            for part, seconds in (point.breakdown_seconds or {}).items():
                row[part.replace(" ", "_") + "_seconds"] = seconds
            rows.append(row | (vars(point.failures) if point.failures else {}))
        return _frame(rows).dropna(axis="columns", how="all")

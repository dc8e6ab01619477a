"""The questions."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeVar

from . import _core, _results
from ._build import build
from ._errors import Error

Path = str | os.PathLike[str]
Precision = Literal["fp64", "fp32", "fp16", "bf16", "fp8"]
Schedule = Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"]
Recompute = Literal["none", "selective", "full"]
RankOrder = Literal["tp-cp-dp-pp", "tp-cp-pp-dp"]
StateSharding = Literal["none", "optimizer", "gradients", "parameters"]
# A number, text as the command takes it ("64..4096", "200,400 Gbit/s"), or several of either.
Values = int | float | str | Sequence[int | float | str]

Answer = TypeVar("Answer", bound=_results._Answer)


def _ask(
    question: Callable[[dict[str, object]], tuple[str, str, str, list[str]]],
    options: dict[str, object],
    kind: type[Answer],
) -> Answer:
    code, message, text, notes = question(options)
    for note in notes:
        warnings.warn(_argument_names(note, options), stacklevel=3)
    data = json.loads(text)
    if code != "ok":
        raise Error(_argument_names(message, options), code, _answer(_results.Shortfall, data) if data else None)
    return _answer(kind, data)


def _answer(kind: type[Answer], data: dict[str, Any]) -> Answer:
    answer = build(kind, data)
    answer.raw.update(data)
    return answer


def _argument_names(message: str, options: dict[str, object]) -> str:
    """The message of a command, with the call's arguments instead of the command's flags."""

    def name(flag: re.Match[str]) -> str:
        argument = flag[1].replace("-", "_")
        return argument if argument in options else flag[0]

    return re.sub(r"--([a-z]+(?:-[a-z]+)*)", name, message)


def _path(path: Path | None) -> str | None:
    return None if path is None else os.fspath(path)


def _text(values: Values | None, unit: str = "") -> str | None:
    """As the command takes it; a number without a unit is in `unit`."""
    if values is None or isinstance(values, str):
        return values
    if isinstance(values, Iterable) and not isinstance(values, Sequence):
        raise TypeError(f"{values!r}: expected a number, text, or a list of either, got a {type(values).__name__}")
    if isinstance(values, Sequence):
        if None in values:
            raise TypeError(f"{list(values)}: None is no value")
        return ",".join(_text(value, unit) or "" for value in values)
    return f"{values}{' ' if unit else ''}{unit}"


def models() -> list[str]:
    """Names of the shipped models."""
    return _core.shipped("model")


def clusters() -> list[str]:
    """Names of the shipped clusters."""
    return _core.shipped("cluster")


def stacks() -> list[str]:
    """Names of the shipped stacks: the software that trains."""
    return _core.shipped("stack")


def plan(
    model: Path,
    cluster: Path,
    *,
    batch: int | None = None,
    seq: int | None = None,
    train: Path | None = None,
    stack: Path | None = None,
    precision: Precision | None = None,
    vocab_multiple: int | None = None,
    gpus: int | None = None,
    tp: int | None = None,
    pp: int | None = None,
    cp: int | None = None,
    dp: int | None = None,
    microbatch: int | None = None,
    virtual_stages: int | None = None,
    layers: Sequence[int] | None = None,
    schedule: Schedule | None = None,
    recompute: Recompute | None = None,
    recompute_layers: int | None = None,
    state_sharding: StateSharding | None = None,
    sequence_parallel: bool | None = None,
    scatter_gather: bool | None = None,
    overlap_reductions: bool | None = None,
    rank_order: RankOrder | None = None,
    dp_shard: int | None = None,
    max_tp: int | None = None,
    max_pp: int | None = None,
    max_cp: int | None = None,
    max_dp: int | None = None,
    max_microbatch: int | None = None,
    max_virtual_stages: int | None = None,
    headroom: str | None = None,
    top: int | None = None,
    explain: bool = False,
) -> _results.Recommendation:
    """The fastest plan that fits in memory, with a proof that no other of the search space is faster.

    model, cluster, stack: names of shipped files, or paths. A model may be a Hugging Face config.json.
    train: a file with training settings. batch: sequences per step, seq: tokens of a sequence; they are
        needed here or in the file.
    precision: of the computation (default: the stack's).
    gpus: the most devices to use (default: the cluster's).
    tp ... rank_order: choices that are not left to the search; microbatch in sequences; layers of
        every stage or, with virtual stages, of every chunk in turn; recompute_layers: full recomputation of
        the first so many layers of each of them.
    dp_shard: replicas that share state among them.
    max_tp ... max_virtual_stages: the most of each that the search may choose.
    headroom: memory that every device keeps free: "7%" or "5 GiB" (default: none).
    top: plans to name, the winner and top - 1 runners-up (default: 5).
    explain: also what keeps a faster plan out and what would change the answer, by ten to thirty
        searches.

    Raises Error with code "infeasible" and a shortfall if nothing fits.
    """
    options: dict[str, object] = {
        "model": _path(model),
        "cluster": _path(cluster),
        "train": _path(train),
        "stack": _path(stack),
        "precision": precision,
        "vocab_multiple": vocab_multiple,
        "batch": batch,
        "seq": seq,
        "gpus": gpus,
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "dp": dp,
        "microbatch": microbatch,
        "virtual_stages": virtual_stages,
        "layers": None if layers is None else list(layers),
        "schedule": schedule,
        "recompute": recompute,
        "recompute_layers": recompute_layers,
        "state_sharding": state_sharding,
        "sequence_parallel": sequence_parallel,
        "scatter_gather": scatter_gather,
        "overlap_reductions": overlap_reductions,
        "rank_order": rank_order,
        "dp_shard": dp_shard,
        "max_tp": max_tp,
        "max_pp": max_pp,
        "max_cp": max_cp,
        "max_dp": max_dp,
        "max_microbatch": max_microbatch,
        "max_virtual_stages": max_virtual_stages,
        "headroom": headroom,
        "top": top,
        "explain": explain,
    }
    return _ask(_core.plan, options, _results.Recommendation)


def _plan_options(
    plan: _results.Plan | _results.Search | _results.Price | Path,
    model: Path,
    cluster: Path,
    stack: Path | None,
    launch: dict[str, object],
) -> dict[str, object]:
    options: dict[str, object] = {
        "model": _path(model),
        "cluster": _path(cluster),
        "stack": _path(stack),
    } | launch
    if isinstance(plan, _results.Search | _results.Price):
        plan = plan.plan
    if isinstance(plan, _results.Plan):
        return options | {"text": plan.text, "file": "plan"}
    return options | {"file": _path(plan)}


def estimate(
    plan: _results.Plan | _results.Search | _results.Price | Path,
    model: Path,
    cluster: Path,
    *,
    stack: Path | None = None,
    gpus: int | None = None,
    tp: int | None = None,
    seq: int | None = None,
    batch: int | None = None,
    microbatch: int | None = None,
    recompute: Recompute | None = None,
) -> _results.Price:
    """What a step of this plan takes on the cluster, and whether it fits in memory.

    plan: a plan, an answer that has one, or the path of a file: a plan, a script with Megatron-LM's
        arguments, torchtitan's TOML or DeepSpeed's JSON.
    stack: the software that trains; needed for a plan that was made for another than Trireme's own.
    gpus ... recompute: what files of other programs leave to the launcher or the script: devices,
        tensor-parallel degree, tokens of a sequence, sequences per step and per microbatch.

    The numbers are those of :func:`check`, without the search for the best plan.
    """
    launch: dict[str, object] = {
        "gpus": gpus,
        "tp": tp,
        "seq": seq,
        "batch": batch,
        "microbatch": microbatch,
        "recompute": recompute,
    }
    return _ask(_core.check, _plan_options(plan, model, cluster, stack, launch), _results.Price)


def check(
    plan: _results.Plan | _results.Search | _results.Price | Path,
    model: Path,
    cluster: Path,
    *,
    stack: Path | None = None,
    gpus: int | None = None,
    tp: int | None = None,
    seq: int | None = None,
    batch: int | None = None,
    microbatch: int | None = None,
    recompute: Recompute | None = None,
) -> _results.Check:
    """The plan beside the best one for the same training on as many devices.

    Arguments as for :func:`estimate`.
    """
    launch: dict[str, object] = {
        "gpus": gpus,
        "tp": tp,
        "seq": seq,
        "batch": batch,
        "microbatch": microbatch,
        "recompute": recompute,
    }
    options = _plan_options(plan, model, cluster, stack, launch) | {"optimum": True}
    return _ask(_core.check, options, _results.Check)


def whatif(
    model: Path,
    cluster: Path | None = None,
    *,
    gpus: Values | None = None,
    gpu: str | Sequence[str] | None = None,
    inter_node: Values | None = None,
    batch: Values | None = None,
    seq: Values | None = None,
    minus_nodes: Values | None = None,
    tokens: Values | None = None,
    price: Values | None = None,
    power: Values | None = None,
    deadline: Values | None = None,
    budget: Values | None = None,
    mtbf: Values | None = None,
    checkpoint_bandwidth: int | float | str | None = None,
    restart: int | float | str | None = None,
    repair: int | float | str | None = None,
    spares: int | None = None,
    train: Path | None = None,
    stack: Path | None = None,
    precision: Precision | None = None,
    vocab_multiple: int | None = None,
    tp: int | None = None,
    pp: int | None = None,
    cp: int | None = None,
    dp: int | None = None,
    microbatch: int | None = None,
    virtual_stages: int | None = None,
    layers: Sequence[int] | None = None,
    schedule: Schedule | None = None,
    recompute: Recompute | None = None,
    recompute_layers: int | None = None,
    state_sharding: StateSharding | None = None,
    sequence_parallel: bool | None = None,
    scatter_gather: bool | None = None,
    overlap_reductions: bool | None = None,
    rank_order: RankOrder | None = None,
    dp_shard: int | None = None,
    max_tp: int | None = None,
    max_pp: int | None = None,
    max_cp: int | None = None,
    max_dp: int | None = None,
    max_microbatch: int | None = None,
    max_virtual_stages: int | None = None,
    threads: int | None = None,
) -> _results.Sweep:
    """Plans for many clusters: every combination of the values.

    A value is a number, several, or text as the command takes it: ``[64, 128]``, ``"64..4096"``,
    ``"200..1600 Gbit/s"``. Numbers are in the unit given here:

    gpus: devices. gpu: shipped systems in place of cluster, ``"h100,b200"``.
    inter_node: line rate of a device between nodes, B/s. batch: sequences. seq: tokens.
    minus_nodes: nodes (hosts) that are missing.
    tokens: of the whole training. price: USD per device and hour. power: W of a device in use.
    deadline: s. budget: USD. mtbf: of one device, s.
    checkpoint_bandwidth: of the storage, B/s. restart: s, until the checkpoint begins to load. repair: s.
    spares: nodes that wait.
    tp ... max_virtual_stages: choices that are not left to the search, and limits, as for :func:`plan`.
    threads: points at a time (default: one per core).

    Deadlines and budgets are answered between the numbers of devices, too, in whole nodes, and apart for every
    mtbf, tokens, minus_nodes and, unless each gpu has its own, price. Points without a plan say why; Error is raised if no point has one.
    """
    options: dict[str, object] = {
        "model": _path(model),
        "cluster": _path(cluster),
        "train": _path(train),
        "stack": _path(stack),
        "precision": precision,
        "vocab_multiple": vocab_multiple,
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "dp": dp,
        "microbatch": microbatch,
        "virtual_stages": virtual_stages,
        "layers": None if layers is None else list(layers),
        "schedule": schedule,
        "recompute": recompute,
        "recompute_layers": recompute_layers,
        "state_sharding": state_sharding,
        "sequence_parallel": sequence_parallel,
        "scatter_gather": scatter_gather,
        "overlap_reductions": overlap_reductions,
        "rank_order": rank_order,
        "dp_shard": dp_shard,
        "max_tp": max_tp,
        "max_pp": max_pp,
        "max_cp": max_cp,
        "max_dp": max_dp,
        "max_microbatch": max_microbatch,
        "max_virtual_stages": max_virtual_stages,
        "threads": threads,
        "gpus": _text(gpus),
        "gpu": _text(gpu),
        "inter_node": _text(inter_node, "B/s"),
        "batch": _text(batch),
        "seq": _text(seq),
        "minus_nodes": _text(minus_nodes),
        "tokens": _text(tokens),
        "price": _text(price, "USD/h"),
        "power": _text(power, "W"),
        "deadline": _text(deadline, "s"),
        "budget": _text(budget, "USD"),
        "mtbf": _text(mtbf, "s"),
        "checkpoint_bandwidth": _text(checkpoint_bandwidth, "B/s"),
        "restart": _text(restart, "s"),
        "repair": _text(repair, "s"),
        "spares": _text(spares),
    }
    return _ask(_core.whatif, options, _results.Sweep)

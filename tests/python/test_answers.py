"""Answers are those of the command on the same question, and typed."""

from __future__ import annotations

import dataclasses
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

import trireme

QUESTION = {"batch": 1536, "seq": 2048, "stack": "megatron-core"}
FLAGS = ["--batch", "1536", "--seq", "2048", "--stack", "megatron-core"]
SMALL = {"batch": 32, "seq": 1024, "stack": "megatron-core"}
SMALL_FLAGS = ["--batch", "32", "--seq", "1024", "--stack", "megatron-core"]


def timeless(data: dict[str, Any]) -> dict[str, Any]:
    """Without the one number that is another in every run."""
    return {key: value for key, value in data.items() if key != "searchSeconds"}


def test_a_plan_is_that_of_the_command(command: Any) -> None:
    best = trireme.plan("gpt3-175b", "dgx-h100", gpus=256, **QUESTION)
    expected, _ = command(
        "plan", "--model", "gpt3-175b", "--cluster", "dgx-h100", "--gpus", "256", *FLAGS
    )
    assert timeless(best.to_dict()) == timeless(expected)
    assert best.estimate.step_seconds == expected["estimate"]["stepSeconds"]
    assert 0 <= best.certificate.gap < 0.05  # of cuts of virtual stages some are costed
    p = best.plan
    assert p.gpus == p.tp * p.pp * p.cp * p.dp == 256
    assert p.dp == p.dp_replicate * p.dp_shard
    assert sum(sum(stage) for stage in p.layers) == 96
    assert (p.batch, p.seq, p.precision, p.stack) == (1536, 2048, "bf16", "megatron-core")


def test_partly_filled_hosts_are_told(command: Any) -> None:
    best = trireme.plan("llama3-8b", "gb200-nvl72", gpus=148, batch=148, seq=8192, stack="megatron-core")
    assert best.partly_filled == best.to_dict()["partlyFilled"]
    assert "ranks in each of" in best.partly_filled


def test_pins_and_the_outlook_are_those_of_the_command(command: Any) -> None:
    pins = {"tp": 2, "recompute": "none", "sequence_parallel": True, "top": 2, "layers": [6, 6]}
    flags = "--tp 2 --recompute none --sequence-parallel on --top 2 --layers 6,6 --explain".split()
    best = trireme.plan("gpt2-124m", "dgx-a100", **SMALL, **pins, explain=True)  # type: ignore[arg-type]
    expected, _ = command(
        "plan", "--model", "gpt2-124m", "--cluster", "dgx-a100", *SMALL_FLAGS, *flags
    )
    assert timeless(best.to_dict()) == timeless(expected)
    assert best.plan.layers == ((6,), (6,))
    assert best.outlook is not None and best.critical_path is not None
    assert best.critical_path.phases[0].seconds > 0


def test_a_sweep_is_that_of_the_command(command: Any) -> None:
    sweep = trireme.whatif(
        "gpt3-175b",
        gpu="h100,b200",
        gpus=[256, 512],
        tokens=300e9,
        price=[2.5, 5],
        deadline="12 d",
        budget=1e6,
        mtbf="5 y",
        checkpoint_bandwidth=100e9,
        restart=600,
        repair="2 d",
        **QUESTION,
    )
    expected, _ = command(
        *"whatif --model gpt3-175b --gpu h100,b200 --gpus 256,512 --tokens 300B --price".split(),
        *["2.5,5 USD/h", "--deadline", "12 d", "--budget", "1 MUSD", "--mtbf", "5 y"],
        *["--checkpoint-bandwidth", "100 GB/s", "--restart", "10 min", "--repair", "2 d", *FLAGS],
    )
    assert sweep.to_dict() == expected
    assert [point.gpus for point in sweep.points] == [256, 512, 256, 512]
    assert sweep.points[0].usd_per_gpu_hour == 2.5  # one price for each GPU
    assert sweep.points[2].usd_per_gpu_hour == 5
    assert sweep.points[0].failures is not None and 0 < sweep.points[0].failures.goodput < 1
    place = sweep.deadlines[0].fewest_devices
    assert place is not None and (sweep.points[place].wall_seconds or 0) <= 12 * 86400
    # Between the points fewer devices do, and one node of 8 less does not.
    refined = sweep.deadlines[0].refined
    assert refined is not None and refined.beyond is not None
    assert refined.point.gpus <= sweep.points[place].gpus
    assert (refined.point.wall_seconds or 0) <= 12 * 86400 < (refined.beyond.wall_seconds or 0)
    assert refined.point.gpus - refined.beyond.gpus == 8
    assert sweep.budgets[0].usd == 1e6


def test_a_sweep_keeps_to_choices(command: Any) -> None:
    sweep = trireme.whatif("gpt2-124m", "dgx-a100", gpus=[8, 16], tp=2, recompute="full", **SMALL)  # type: ignore[arg-type]
    expected, _ = command(
        *"whatif --model gpt2-124m --cluster dgx-a100 --gpus 8,16 --tp 2 --recompute full".split(),
        *SMALL_FLAGS,
    )
    assert sweep.to_dict() == expected
    assert all("tp 2," in (p.plan or "") and "recompute full" in (p.plan or "") for p in sweep.points)


def test_recomputed_layers_are_a_choice(command: Any) -> None:
    best = trireme.plan("gpt3-175b", "dgx-h100", gpus=256, pp=8, recompute_layers=2, **QUESTION)
    expected, _ = command(
        *"plan --model gpt3-175b --cluster dgx-h100 --gpus 256 --pp 8 --recompute-layers 2".split(),
        *FLAGS,
    )
    assert timeless(best.to_dict()) == timeless(expected)
    assert (best.plan.recompute, best.plan.recompute_layers) == ("full", 2)


def test_room_in_memory_can_be_asked_for() -> None:
    asked = {"gpus": 64, "batch": 512, "seq": 8192, "stack": "torchtitan"}
    best = trireme.plan("llama3-8b", "dgx-h100", **asked, headroom="7%").estimate  # type: ignore[arg-type]
    assert best.headroom_bytes == pytest.approx(0.07 * (best.memory_available_bytes + best.headroom_bytes), abs=1)
    assert best.memory_total_bytes <= best.memory_available_bytes
    assert not best.memory_tight
    with pytest.raises(trireme.Error, match="expected a share of the memory, such as 7%"):
        trireme.plan("llama3-8b", "dgx-h100", **asked, headroom="x%")  # type: ignore[arg-type]


def test_limits_are_those_of_the_command(command: Any) -> None:
    best = trireme.plan("gpt3-175b", "dgx-h100", gpus=256, max_tp=4, max_virtual_stages=1, **QUESTION)
    expected, _ = command(
        *"plan --model gpt3-175b --cluster dgx-h100 --gpus 256 --max-tp 4 --max-virtual-stages 1".split(),
        *FLAGS,
    )
    assert timeless(best.to_dict()) == timeless(expected)
    assert best.plan.tp <= 4 and best.plan.virtual_stages == 1


def test_a_checked_plan_is_that_of_the_command(command: Any, tmp_path: Path) -> None:
    best = trireme.plan("gpt2-124m", "dgx-a100", **SMALL, recompute="full")  # type: ignore[arg-type]
    file = tmp_path / "by-hand.plan.yaml"
    best.plan.save(file)
    stack = "megatron-core"
    check = trireme.check(file, "gpt2-124m", "dgx-a100", stack=stack)
    expected, _ = command(
        *"plan --model gpt2-124m --cluster dgx-a100 --stack megatron-core --check".split(), str(file)
    )
    optimum = expected.pop("optimum")
    actual = check.to_dict()
    assert timeless(actual.pop("optimum")) == timeless(optimum)
    assert actual == expected
    assert check.best_change is not None and check.best_change.choice == "recompute"
    # The price alone is the same, from the file or from the plan at hand.
    for plan in (file, best.plan, best):
        price = trireme.estimate(plan, "gpt2-124m", "dgx-a100", stack=stack)
        assert {key: expected[key] for key in price.to_dict()} == price.to_dict()
    split = trireme.plan("gpt2-124m", "dgx-a100", **SMALL, tp=2)  # type: ignore[arg-type]
    with pytest.raises(trireme.Error, match="stack 'composer-fsdp' has no tp 2"):
        trireme.estimate(split, "gpt2-124m", "dgx-a100", stack="composer-fsdp")
    assert price.plan == best.plan == trireme.Plan.load(file)
    assert sum(price.estimate.breakdown_seconds.values()) == pytest.approx(
        price.estimate.step_seconds
    )


def test_files_of_other_programs_are_priced(command: Any, tmp_path: Path) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"train_batch_size": 32, "fp16": {"enabled": true}, "mystery": 1}')
    with pytest.raises(trireme.Error, match="the number of devices"):
        trireme.estimate(file, "gpt2-774m", "dgx-a100")
    with pytest.warns(UserWarning, match="not counted: mystery"):
        check = trireme.check(
            file, "gpt2-774m", "dgx-a100", gpus=8, tp=1, seq=1024, recompute="full"
        )
    flags = "--gpus 8 --tp 1 --seq 1024 --recompute full --model gpt2-774m --cluster dgx-a100"
    expected, _ = command("plan", "--check", str(file), *flags.split())
    assert check.estimate.step_seconds == expected["estimate"]["stepSeconds"]
    assert check.behind_seconds == expected["behindSeconds"]
    assert (check.plan.dp, check.plan.microbatch, check.plan.recompute) == (8, 4, "full")


def test_a_file_of_another_program_is_held_against_what_that_can_run(
    command: Any, tmp_path: Path
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(
        '[model]\nflavor = "8B"\n[training]\nlocal_batch_size = 1\n[parallelism]\n'
        'tensor_parallel_degree = 8\n[activation_checkpoint]\nmode = "full"\n'
    )
    with pytest.warns(UserWarning, match="priced in fp32, as torchtitan computes"):
        check = trireme.check(file, "llama3-8b", "dgx-h100", gpus=8, seq=2048)
    expected, _ = command(
        *"plan --model llama3-8b --cluster dgx-h100 --gpus 8 --seq 2048 --check".split(), str(file)
    )
    optimum = expected.pop("optimum")
    actual = check.to_dict()
    assert timeless(actual.pop("optimum")) == timeless(optimum)
    assert actual == expected
    # Its tensor parallelism is sequence parallel.
    assert "sequence_parallel: true" in optimum["plan"]
    assert optimum["estimate"]["stepSeconds"] <= expected["estimate"]["stepSeconds"]


def test_messages_name_arguments(tmp_path: Path) -> None:
    best = trireme.plan("gpt2-124m", "dgx-a100", **SMALL)  # type: ignore[arg-type]
    own, foreign = tmp_path / "own.yaml", tmp_path / "foreign.yaml"
    best.plan.save(own)
    foreign.write_text(re.sub("stack: .*", "stack: mine", best.plan.text))
    with pytest.raises(trireme.Error, match="stack 'mine': give its profile with stack$"):
        trireme.check(foreign, "gpt2-124m", "dgx-a100")
    with pytest.raises(trireme.Error, match="a plan says all of it: leave out gpus, tp, seq, batch,"):
        trireme.check(own, "gpt2-124m", "dgx-a100", gpus=8)
    foreign.write_text("what is this\n")
    with pytest.raises(trireme.Error, match="no command line or script of Megatron-LM .with --micro-"):
        trireme.check(foreign, "gpt2-124m", "dgx-a100")


def test_what_the_command_refuses_is_raised(command: Any) -> None:
    with pytest.raises(trireme.Error) as failed:
        trireme.plan("llama2-13b", "dgx-h100", gpus=2, **QUESTION)
    expected, message = command(
        "plan", "--model", "llama2-13b", "--cluster", "dgx-h100", "--gpus", "2", *FLAGS
    )
    assert str(failed.value) == message
    assert failed.value.code == "infeasible"
    assert failed.value.shortfall is not None
    assert failed.value.shortfall.to_dict() == expected
    assert failed.value.shortfall.changes[0].devices > 2

    with pytest.raises(trireme.Error) as failed:
        trireme.plan("gpt3-175", "dgx-h100", **QUESTION)
    _, message = command("plan", "--model", "gpt3-175", "--cluster", "dgx-h100", *FLAGS)
    assert str(failed.value) == message
    assert failed.value.code == "unavailable"
    assert failed.value.shortfall is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gpus": "64.."}, "gpus: expected a value, a list or a range"),
        ({"inter_node": "400 Gpbs"}, "inter_node: unknown unit 'Gpbs'.*'400 Gbit/s'"),
        ({"price": 2.5}, "price needs tokens"),
        ({"precision": "bf61"}, "precision: unknown value 'bf61'; did you mean 'bf16'"),
        ({"gpus": 0}, "gpus: must be at least 1, got 0"),
    ],
)
def test_bad_options_name_what_is_near(options: dict[str, Any], message: str) -> None:
    with pytest.raises(trireme.Error, match=message):
        trireme.whatif("gpt2-124m", "dgx-a100", **(SMALL | options))


def test_a_wrong_type_is_a_type_error(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="gpus"):
        trireme.plan("gpt2-124m", "dgx-a100", gpus="many", **SMALL)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="None is no value"):
        trireme.whatif("gpt2-124m", "dgx-a100", gpus=[8, None], **SMALL)  # type: ignore[arg-type, list-item]
    with pytest.raises(TypeError, match="expected a number, text, or a list of either, got a set"):
        trireme.whatif("gpt2-124m", "dgx-a100", gpus={8, 16}, **SMALL)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="layers: unexpected 8.5 of <class 'float'>"):
        trireme.plan("gpt2-124m", "dgx-a100", layers=[8, 8.5], **SMALL)  # type: ignore[arg-type, list-item]


def test_what_is_missing_or_empty_is_said_so() -> None:
    with pytest.raises(trireme.Error, match="layers: is empty"):
        trireme.plan("gpt2-124m", "dgx-a100", layers=[], **SMALL)  # type: ignore[arg-type]
    with pytest.raises(trireme.Error, match="model: is missing: give a name or a path"):
        trireme.plan(None, "dgx-a100", **SMALL)  # type: ignore[arg-type]
    with pytest.raises(trireme.Error, match="cluster: is missing"):
        trireme.plan("gpt2-124m", None, **SMALL)  # type: ignore[arg-type]
    with pytest.raises(trireme.Error, match="plan: is missing"):
        trireme.check(None, "gpt2-124m", "dgx-a100")  # type: ignore[arg-type]


def test_devices_may_have_the_same_price() -> None:
    of_three: dict[str, Any] = {"gpu": ["h100", "h200", "b200"], "price": [2, 2, 5], "tokens": "1B"}
    sweep = trireme.whatif("gpt2-124m", gpus=8, **of_three, **SMALL)
    assert [point.usd_per_gpu_hour for point in sweep.points] == [2, 2, 5]


def test_a_range_of_prices_is_swept_whatever_its_length() -> None:
    of_three: dict[str, Any] = {"gpu": ["h100", "h200", "b200"], "tokens": "1B"}
    ranges: dict[str, Any] = {"price": "1..4 USD/h", "power": "500..2000 W"}
    sweep = trireme.whatif("gpt2-124m", gpus=8, **of_three, **ranges, **SMALL)
    assert len(sweep.points) == 3 * 3 * 3
    assert [point.usd_per_gpu_hour for point in sweep.points[::3]] == [1, 2, 4] * 3


def test_every_mtbf_has_its_answer() -> None:
    failures: dict[str, Any] = {"mtbf": ["1 d", "5 y"], "checkpoint_bandwidth": 1e9, "restart": 0}
    sweep = trireme.whatif(
        "gpt2-124m", "dgx-h100", gpus=8, tokens="1B", deadline="30 d", **failures, **SMALL
    )
    assert [d.gpu_mean_between_seconds for d in sweep.deadlines] == [86400, 5 * 365 * 86400]
    assert [d.fewest_devices for d in sweep.deadlines] == [0, 1]


def test_what_is_out_of_range_or_no_text_is_said_so(tmp_path: Path) -> None:
    for ask in (trireme.plan, trireme.whatif):
        with pytest.raises(trireme.Error, match="gpus: .*1000000000000000000000"):
            ask("gpt2-124m", "dgx-a100", gpus=10**21, **SMALL)  # type: ignore[operator]
    file = tmp_path / "plan.yaml"
    file.write_bytes(b"pla\xff")
    with pytest.raises(trireme.Error, match="plan.yaml: is not a plan: byte 3 is not UTF-8"):
        trireme.Plan.load(file)


def test_what_a_model_file_asks_and_nobody_uses_is_a_warning(tmp_path: Path) -> None:
    shipped = ROOT / "examples/models/hf/gpt2.json"
    file = tmp_path / "config.json"
    text = re.sub(r'"resid_pdrop": [0-9.]+', '"resid_pdrop": 0.25', shipped.read_text())
    file.write_text(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trireme.plan(file, "dgx-a100", gpus=8, **SMALL)  # type: ignore[arg-type]
    assert any("resid_pdrop 0.25 is not used" in str(warning.message) for warning in caught)


def test_shipped_names_are_found() -> None:
    assert "gpt3-175b" in trireme.models()
    assert "dgx-h100" in trireme.clusters()
    assert "megatron-core" in trireme.stacks()


def test_answers_are_readable_values() -> None:
    best = trireme.plan("gpt2-124m", "dgx-a100", gpus=8, **SMALL)  # type: ignore[arg-type]
    assert repr(best) == f"<Recommendation {best.estimate.step_seconds * 1e3:.3f} ms on 8 GPUs: {best.summary}>"
    assert repr(best.plan) == f"<Plan 8 GPUs: {best.summary}>"
    assert re.fullmatch(r"<Estimate .* ms, \d+ tokens/s, MFU .* %, .* GiB of .* GiB>", repr(best.estimate))
    with pytest.raises(dataclasses.FrozenInstanceError):
        best.plan.tp = 2  # type: ignore[misc]
    assert trireme.Plan.parse(best.plan.text) == best.plan
    with pytest.raises(trireme.Error, match="mine.yaml:1"):
        trireme.Plan.parse("tp: [", "mine.yaml")

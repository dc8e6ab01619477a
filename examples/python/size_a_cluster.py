# A notebook in cells (VS Code, Spyder, Jupytext): which cluster, and which plan, for Llama 3 70B?
# Needs `pip install '.[pandas]'` in the checkout.

# %% The fastest plan on 256 H100, and why it is the best.
import trireme

best = trireme.plan("llama3-70b", "dgx-h100", gpus=256, batch=512, seq=8192, stack="megatron-core")
print(best)
print(best.estimate)
print(f"bound {best.certificate.bound_seconds:.3f} s, gap {best.certificate.gap}")

# %% Where the time goes, and what the runners-up lose.
print(best.estimate.to_frame())
print(best.to_frame()[["tp", "pp", "cp", "dp", "step_seconds", "slower_seconds"]])

# %% What would one choice more cost? The same plan with everything recomputed:
full = trireme.plan(
    "llama3-70b", "dgx-h100", gpus=256, batch=512, seq=8192, stack="megatron-core", recompute="full"
)
print(f"recompute full: {full.estimate.step_seconds - best.estimate.step_seconds:.3f} s slower")

# %% The plan as a file, for `trireme export`; priced on another cluster.
on_h200 = trireme.estimate(best, "llama3-70b", "dgx-h200", stack="megatron-core")
print(on_h200)

# %% How many GPUs finish 15T tokens in 60 days, and for how much?
sweep = trireme.whatif(
    "llama3-70b",
    gpu=["h100", "b200"],
    gpus="1024..4096",
    batch=2048,
    seq=8192,
    stack="megatron-core",
    tokens="15T",
    price=[2.5, 5.0],  # USD per GPU and hour, of each
    deadline="60 d",
)
frame = sweep.to_frame()
frame["days"] = frame["wall_seconds"] / 86400
print(frame[["system", "gpus", "days", "cost_usd", "model_flops_utilisation", "on_front"]])

for deadline in sweep.deadlines:
    if deadline.cheapest is not None:
        point = sweep.points[deadline.cheapest]
        print(f"in {deadline.seconds / 86400:.0f} days, cheapest: {point.gpus} {point.system}")

# %% What fails says what would help.
try:
    trireme.plan("llama3-405b", "dgx-h100", gpus=16, batch=64, seq=8192, stack="megatron-core")
except trireme.Error as error:
    print(error)
    if error.shortfall:
        for change in error.shortfall.changes:
            print(f"  {change.change}: {change.estimate.step_seconds:.1f} s a step")

"""Find, price and compare parallel training configurations of transformers.

    >>> import trireme
    >>> best = trireme.plan("gpt3-175b", "dgx-a100", gpus=1024, batch=1536, seq=2048, precision="bf16")
    >>> best.plan.tp, best.plan.pp, best.plan.dp
    (4, 8, 32)

Models, clusters and stacks (the software that trains) are names of shipped files (``models()``,
``clusters()``, ``stacks()``) or paths, as for the ``trireme`` command, whose ``--json`` has the
same numbers. All are in SI units, which attribute names say: ``step_seconds``, ``memory_bytes``.

Nothing is printed. What fails raises :class:`Error` with the command's message; Ctrl-C stops a
search; other threads go on while one searches. ``to_frame()`` of every answer needs pandas.
"""

from ._api import check, clusters, estimate, models, plan, stacks, whatif
from ._core import version as __version__
from ._errors import Error
from ._results import (
    Alternative,
    Budget,
    Certificate,
    Check,
    CriticalPath,
    Deadline,
    Estimate,
    Failures,
    Limit,
    Nearest,
    NearestMiss,
    Outlook,
    Phase,
    Plan,
    Point,
    Price,
    Recommendation,
    Refinement,
    Rejection,
    Relaxation,
    Roomier,
    RunnerUp,
    Search,
    Sensitivity,
    Shortfall,
    Sweep,
)

__all__ = [
    "Alternative",
    "Budget",
    "Certificate",
    "Check",
    "CriticalPath",
    "Deadline",
    "Error",
    "Estimate",
    "Failures",
    "Limit",
    "Nearest",
    "NearestMiss",
    "Outlook",
    "Phase",
    "Plan",
    "Point",
    "Price",
    "Recommendation",
    "Refinement",
    "Rejection",
    "Relaxation",
    "Roomier",
    "RunnerUp",
    "Search",
    "Sensitivity",
    "Shortfall",
    "Sweep",
    "__version__",
    "check",
    "clusters",
    "estimate",
    "models",
    "plan",
    "stacks",
    "whatif",
]

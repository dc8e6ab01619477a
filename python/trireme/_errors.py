"""What fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._results import Shortfall


class Error(Exception):
    """Something could not be done; the message says what was wrong and what is near.

    code: ``"invalid argument"`` (fix the input), ``"infeasible"`` (no plan fits: relax something),
        ``"resource exhausted"``, ``"unavailable"`` or ``"internal error"`` (a bug).
    shortfall: if no plan fits, by how much the nearest misses, and what would fit.
    """

    code: str
    shortfall: Shortfall | None

    def __init__(self, message: str, code: str, shortfall: Shortfall | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.shortfall = shortfall

"""What the notebooks of `recipes/lessons` share: show code, architectures and figures, check answers."""

from ..lazy import lazy_names

_HOMES = {
    "EXERCISES": "exercises",
    "check": "checks",
    "leave_one_out": "exercises.kernel",
    "quiz": "quizzes",
    "show_architecture": "display",
    "show_code": "display",
    "show_figure": "display",
    "source_of": "display",
}
__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)

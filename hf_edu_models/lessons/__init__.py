"""What the notebooks of `recipes/lessons` share: show code, architectures and figures, check answers."""

from .checks import check
from .display import show_architecture, show_code, show_figure, source_of
from .exercises import EXERCISES
from .exercises.kernel import leave_one_out
from .quizzes import quiz

__all__ = [
    "EXERCISES",
    "check",
    "leave_one_out",
    "quiz",
    "show_architecture",
    "show_code",
    "show_figure",
    "source_of",
]

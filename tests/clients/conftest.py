import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))  # `from tiny import ...` in this folder's tests

CLIENTS = "transformers torch accelerate peft trl sentence-transformers setfit onnxruntime openvino"
TOOLS = "lm-eval captum bertviz nnsight optuna torchao"


def installed_versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in f"{CLIENTS} {TOOLS}".split():
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found


def pytest_report_header() -> str:
    return "clients: " + ", ".join(f"{name} {number or 'missing'}" for name, number in installed_versions().items())

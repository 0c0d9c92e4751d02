import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))  # `from tiny import ...` in this folder's tests
sys.path.insert(0, str(Path(__file__).parent))  # `from engine import ...`
sys.path.insert(0, str(Path(__file__).parents[1] / "explain"))  # `from browser import ...`

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # `from tiny import ...` in this folder's tests

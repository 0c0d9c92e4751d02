import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes that tests start

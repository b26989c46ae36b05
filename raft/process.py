"""Settings of a process that runs replicas: interpreter lock, garbage collector."""

import gc
import sys

SWITCH_INTERVAL_S = 0.0005
GC_THRESHOLDS = (50_000, 20, 50)


def prepare() -> None:
    """Apply the settings. Call it after all imports and before replicas start."""
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)

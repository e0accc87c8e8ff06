"""The ground that every fast part stands on. It knows neither TCP nor Kafka.

decorator   `@kernel` and `@helper`: plain functions over arrays that numba compiles
store       compiled kernels kept as object code and loaded without importing numba
build       the child process that fills the store
numba_bridge  the few numba internals that `build` and the numba mode use
readers     bounded big-endian and little-endian reads, shared by all kernels
hashing     keyed hashes
arrays      growable arrays of records
table       arrays whose rows are taken and given back
"""

from .decorator import Kernel, helper, kernel, kernel_mode

__all__ = ["Kernel", "helper", "kernel", "kernel_mode"]

"""What every fast part of kafkatap is built on. It knows neither TCP nor Kafka.

declarations  records, tuples of arrays, helpers, and the signature of a kernel
decorator     `@kernel`: runs a kernel compiled, or as plain Python
store         keeps compiled kernels as object code, and loads them without importing numba
build         the child process that fills the store
kernel_digest what a kernel's object code depends on
kept_objects  object code by digests, so that only changed kernels are compiled again
ship          compiles the kernels that a copy of the package brings along
numba_bridge  the numba internals that `build` and the numba mode use
readers       big-endian and little-endian reads
writers       writes of values that are to be digested
hashing       keyed hashes
hints         hints to the processor
arrays        arrays that grow, and arrays that use memory only where they are written
table         tables that grow, and tables whose rows are taken and released
"""

from .decorator import Kernel, helper, kernel, kernel_mode

__all__ = ["Kernel", "helper", "kernel", "kernel_mode"]

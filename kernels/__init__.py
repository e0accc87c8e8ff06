"""What every fast part of kafkatap is built on. It knows neither TCP nor Kafka.

declarations  records, tuples of arrays, helpers, and the signature of a kernel
decorator     `@kernel`: runs a kernel compiled, or as plain Python
store         finds compiled kernels: in the library, or in the user's cache
library       the kernels that were compiled with the package
platforms     the platforms for which there can be such a library
source_list   whether what was made ahead still fits its sources
cache         kernels compiled on this machine, as object code in the user's cache folder
kept_objects  object code by digests, so that only changed kernels are compiled again
calling       calls of compiled kernels
build         the child process that compiles
make_library  compiles and links the library, when the package is built
linker        objects of kernels to a shared library of Linux
kernel_digest what a kernel's object code depends on
numba_bridge  the numba internals that `build` and the numba mode use
readers       big-endian and little-endian reads
writers       writes of values that are to be digested
hashing       keyed hashes
hints         hints to the processor
shared_memory words that another processor writes or reads meanwhile
column_spec   the declaration of a column of rows and of the table that is made of them
arrays        arrays that grow, and arrays that use memory only where they are written
table         tables that grow, and tables whose rows are taken and released
"""

from .decorator import Kernel, helper, kernel, kernel_mode

__all__ = ["Kernel", "helper", "kernel", "kernel_mode"]

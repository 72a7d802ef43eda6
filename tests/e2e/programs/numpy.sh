#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python3 with numpy: a few large arrays, worked on whole.
source "$(dirname "$0")/common.sh"
python=$(PATH=/usr/bin need python3 python3)
"$python" -c 'import numpy' 2>/dev/null || { say "numpy is not installed (package python3-numpy)" >&2; exit 77; }

cat >script.py <<'PYTHON'
import hashlib
import numpy

def told(what, array):
    print(what, array.shape, hashlib.sha256(numpy.ascontiguousarray(array)).hexdigest())

random = numpy.random.default_rng(11)
a = random.integers(0, 1 << 40, 6_000_000, dtype=numpy.int64)
told("integers", a)
b = numpy.sort(a)
told("sorted", b)
told("sums", numpy.cumsum(a ^ b[::-1]))
del b
matrix = a[:4_000_000].reshape(2000, 2000).astype(numpy.float64)
told("transposed", matrix.T)
told("scaled", (matrix - matrix.mean()) / 7)
a.resize(8_000_000)
told("grown", a)
told("strided", a[::513] % 1009)
PYTHON
# One thread: the order of floating point sums must not depend on the machine.
export OPENBLAS_NUM_THREADS=1
natively "$python" ../script.py
managed "$python" ../script.py
same out
verdict

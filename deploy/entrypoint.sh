#!/bin/sh
# Numba writes beside what it has compiled, so the kernels of the image are copied to where it may.
set -eu
if [ ! -d "$NUMBA_CACHE_DIR" ]; then
    cp -R /opt/kernels "$NUMBA_CACHE_DIR"
fi
exec python -m api "$@"

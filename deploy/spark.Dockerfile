# Executors (and drivers) for Spark on Kubernetes, with a Python that has decaysketch. From the root
# of the project:
#
#   docker build --file deploy/spark.Dockerfile --tag spark-decaysketch .
#
# The Python of Spark's own images is that of their Ubuntu: 3.10 up to Spark 4.2, where 3.11 is the
# least. This one has its own, and does not depend on which it is. It must have the minor version of
# the driver's: Spark refuses to mix them. SPARK is the version of the driver's pyspark.

ARG SPARK=4.3.0
ARG PYTHON=3.11

# The library's wheel. The slim image has no compiler: the build fetches one, which stays here.
FROM python:${PYTHON}-slim AS wheel
WORKDIR /project
COPY setup.py pyproject.toml MANIFEST.in README.md LICENSE ./
COPY requirements/zig.txt requirements/zig.txt
COPY scripts scripts
COPY decaysketch decaysketch
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheel .

FROM apache/spark:${SPARK}-python3
ARG SPARK
ARG PYTHON

USER root
COPY --from=ghcr.io/astral-sh/uv:0.13 /uv /usr/local/bin/uv
COPY --from=wheel /wheel /tmp/dist
RUN UV_PYTHON_INSTALL_DIR=/opt/python uv venv --python ${PYTHON} /opt/decaysketch \
    && uv pip install --no-cache --python /opt/decaysketch/bin/python \
        "$(ls /tmp/dist/decaysketch-*.whl)[spark]" pyspark==${SPARK} \
    && /opt/decaysketch/bin/python -c \
        "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed')" \
    && rm -r /tmp/dist

# Machine code of the kernels, for the kind of processor that builds the image.
ENV NUMBA_CACHE_DIR=/opt/kernels
RUN /opt/decaysketch/bin/python -c "from decaysketch.tables import warm_up; warm_up()" \
    && chown -R spark:spark /opt/kernels

ENV PYSPARK_PYTHON=/opt/decaysketch/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/decaysketch/bin/python
USER spark

# Executors (and drivers) for Spark on Kubernetes, with a Python that has decaysketch. From the root
# of the project, with the wheel in dist/ (pip wheel --no-deps --wheel-dir dist .):
#
#   docker build --file deploy/spark.Dockerfile --tag spark-decaysketch .
#
# The Python of Spark's own images is that of their Ubuntu: 3.10 up to Spark 4.2, where 3.11 is the
# least. This one has its own, and does not depend on which it is. It must have the minor version of
# the driver's: Spark refuses to mix them. SPARK is the version of the driver's pyspark.

ARG SPARK=4.3.0
FROM apache/spark:${SPARK}-python3
ARG SPARK
ARG PYTHON=3.11

USER root
COPY --from=ghcr.io/astral-sh/uv:0.13 /uv /usr/local/bin/uv
COPY dist/decaysketch-*.whl /tmp/dist/
RUN UV_PYTHON_INSTALL_DIR=/opt/python uv venv --python ${PYTHON} /opt/decaysketch \
    && uv pip install --no-cache --python /opt/decaysketch/bin/python \
        "$(ls /tmp/dist/decaysketch-*.whl)[spark]" pyspark==${SPARK} \
    && /opt/decaysketch/bin/python -c \
        "import sys; sys.exit(sys.version_info < (3, 11) and 'Python 3.11 or newer is needed')" \
    && rm -r /tmp/dist

# Machine code of the kernels, for the kind of processor that builds the image.
ENV NUMBA_CACHE_DIR=/opt/kernels
RUN /opt/decaysketch/bin/python -c "from decaysketch.batch import warm_up; warm_up()" \
    && chown -R spark:spark /opt/kernels

ENV PYSPARK_PYTHON=/opt/decaysketch/bin/python \
    PYSPARK_DRIVER_PYTHON=/opt/decaysketch/bin/python
USER spark

# Image of Dataflow's workers, and of the program that starts their jobs.
#
#   docker build --tag=tff-algos:0.1.0 .
#   docker build --file=docs/examples/dataflow.Dockerfile --tag=IMAGE .
#   docker push IMAGE
#
# Not built yet; checked with hadolint, and the packages by pip.
FROM tff-algos:0.1.0

# What Beam's DataflowRunner imports, beside the packages of the lock. Beam's
# extra gcp has many more, which do not go with them.
RUN .venv/bin/python -m pip freeze > /tmp/pins \
  && .venv/bin/python -m pip install --no-cache-dir --constraint=/tmp/pins \
    google-auth-httplib2==0.4.4 \
    google-cloud-dataflow-client==0.14.0 \
    google-cloud-resource-manager==1.18.0 \
    google-cloud-storage==3.17.1

# Starts the worker processes; of the version of apache-beam in the lock.
COPY --from=apache/beam_python3.11_sdk:2.77.0 /opt/apache/beam /opt/apache/beam
# The environment of the lock, and no new one beside it.
ENV PATH=/tff_algos/.venv/bin:$PATH \
  PYTHONPATH=/tff_algos \
  RUN_PYTHON_SDK_IN_DEFAULT_ENVIRONMENT=1
ENTRYPOINT ["/opt/apache/beam/boot"]

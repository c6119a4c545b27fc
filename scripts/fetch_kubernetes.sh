#!/usr/bin/env bash
# Brings what tests/kubernetes reads manifests with: kubernetes-validate (the published schemas), PyYAML and jsonschema from
# PyPI, in a virtual environment, .deps/kubernetes. Safe to run again; where it cannot be brought it says so and exits 0:
# the tests that want it are skipped then.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

without() { echo "kubernetes: not fetched ($*); kubernetes_schemas_test and kubernetes_pods_test will be skipped"; exit 0; }

! .deps/kubernetes/bin/python -c 'import jsonschema, kubernetes_validate, yaml' 2>/dev/null || exit 0
mkdir -p .deps
rm -rf .deps/kubernetes
trap '[ -e .deps/kubernetes/.ready ] || rm -rf .deps/kubernetes' EXIT
python3 -m venv .deps/kubernetes >/dev/null 2>&1 || without "python3 -m venv fails: Debian has it in python3-venv"
timeout 300 .deps/kubernetes/bin/pip install -q --disable-pip-version-check \
  kubernetes-validate==1.37.0 PyYAML jsonschema >/dev/null 2>&1 || without "pip cannot install them"
touch .deps/kubernetes/.ready
echo "kubernetes: kubernetes-validate is in .deps/kubernetes"

#!/usr/bin/env bash
# The manifests of deploy/kubernetes without a cluster. kubernetes_test.sh schemas: against the published schemas.
# kubernetes_test.sh pods: the commands of their containers, as processes.
#
# The validator and a YAML reader lie in a virtual environment, .deps/kubernetes:
#
#   python3 -m venv .deps/kubernetes && .deps/kubernetes/bin/pip install kubernetes-validate==1.37.0 PyYAML jsonschema
#
# Where it is not there, the test is skipped (exit code 77) and says which capability it lacks.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.deps/kubernetes/bin/python
if ! "$python" -c 'import jsonschema, kubernetes_validate, yaml' 2>/dev/null; then
  echo "SKIP: needs the capability kubernetes-validate (a virtual environment in .deps/kubernetes; see $0)"
  exit 77
fi
case ${1:-} in
  schemas) exec "$python" tests/kubernetes/check.py deploy/kubernetes ;;
  pods) exec "$python" tests/kubernetes/pods.py deploy/kubernetes "${MANTA_BUILD_DIR:-build}" ;;
  *) echo "usage: $0 schemas|pods" >&2; exit 64 ;;
esac

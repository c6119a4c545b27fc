#!/usr/bin/env bash
# The manifests of deploy/kubernetes without a cluster. kubernetes_test.sh schemas: against the published schemas.
# kubernetes_test.sh pods: the commands of their containers, as processes. Skipped (77) where the validator and the YAML
# reader are not there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.deps/kubernetes/bin/python
if ! "$python" -c 'import jsonschema, kubernetes_validate, yaml' 2>/dev/null; then
  echo "SKIP: needs the capability kubernetes-validate (scripts/fetch_kubernetes.sh)"
  exit 77
fi
case ${1:-} in
  schemas) exec "$python" tests/kubernetes/check.py deploy/kubernetes ;;
  pods) exec "$python" tests/kubernetes/pods.py deploy/kubernetes "${MANTA_BUILD_DIR:-build}" ;;
  *) echo "usage: $0 schemas|pods" >&2; exit 64 ;;
esac

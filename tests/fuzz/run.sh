#!/usr/bin/env bash
# Runs every fuzzer for a while: run.sh BUILD_FOLDER SECONDS. Inputs that crash one are kept in BUILD_FOLDER/fuzz.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:?usage: run.sh BUILD_FOLDER SECONDS}
seconds=${2:?usage: run.sh BUILD_FOLDER SECONDS}
mkdir -p "$build/fuzz"
failed=0
for name in yaml safetensors tokenizer template math jsonl model_config calls; do
  seeds=("tests/fuzz/corpus/$name")
  case $name in
    yaml) seeds+=(configs/*.yaml) ;;
    tokenizer) seeds+=(assets/quickstart/tokenizer/tokenizer.json) ;;
    model_config) seeds+=(assets/quickstart/init/config.json) ;;
  esac
  "$build/bin/fuzz_$name" --seconds "$seconds" --artifacts "$build/fuzz" "${seeds[@]}" || failed=1
done
[ $failed = 0 ] && echo "no finding" || echo "findings: the inputs are in $build/fuzz"
exit $failed

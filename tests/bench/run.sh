#!/usr/bin/env bash
# Runs the benchmarks that need neither a GPU nor Python, one after another: run.sh BUILD_FOLDER. They print; docs/benchmarks.md
# says what each line means.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${1:?usage: run.sh BUILD_FOLDER}
model=assets/quickstart/model
run() {
  printf '\n== %s\n' "$*"
  "$build/bin/$1" "${@:2}"
}
run bench_kernels
run bench_model "$model"
run bench_trainer --config "$model/config.json"
run bench_generator --model "$model" --new-tokens 40  # it knows 64 positions
run bench_tokenizer assets/quickstart/tokenizer assets/quickstart/data/sft_train.jsonl
run collective_bench
run weight_bench
run rpc_bench
run bench_actor

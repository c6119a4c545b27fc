#!/usr/bin/env bash
# Remakes the quickstart: data and tokenizer by make_quickstart_data.py, then the model by SFT from random weights.
#
#   scripts/make_quickstart_model.sh              into assets/quickstart
#   scripts/make_quickstart_model.sh OUT          into another folder, then says whether the model's bytes are the same
#
# MANTA names the program (by default build/bin/manta). Takes about a minute on two CPU cores. Seeds are fixed, so that
# the same build on the same kind of CPU gives the same bytes; another kind may round differently.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

committed=assets/quickstart
out=${1:-$committed}
manta=${MANTA:-build/bin/manta}
config=configs/quickstart_sft.yaml
[ -x "$manta" ] || { echo "$0: error: $manta is not there; build it first, or set MANTA" >&2; exit 64; }
steps=$(sed -n 's/^  max_num_steps: *\([0-9]*\).*/\1/p' "$config")
[ -n "$steps" ] || { echo "$0: error: $config: no number at sft.max_num_steps" >&2; exit 64; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python3 scripts/make_quickstart_data.py "$out"
"$manta" run "$config" \
  policy.tokenizer.name="$out/tokenizer" \
  data.train.data_path="$out/data/sft_train.jsonl" \
  data.validation.data_path="$out/data/sft_validation.jsonl" \
  checkpointing.checkpoint_dir="$work/checkpoints" logger.log_dir="$work/logs"

weights=$work/checkpoints/step_$steps/policy/weights
[ -f "$weights/model.safetensors" ] || { echo "$0: error: $weights/model.safetensors was not written" >&2; exit 1; }
mkdir -p "$out/model"
rm -f "$out/model"/*
cp "$weights"/* "$out/model/"

if git rev-parse --git-dir >/dev/null 2>&1; then
  same=$(git rev-parse -q --verify "HEAD:$committed/model/model.safetensors" || true)
  if [ "$same" = "$(git hash-object "$out/model/model.safetensors")" ]; then
    echo "$out/model/model.safetensors: the committed bytes"
  else
    echo "$out/model/model.safetensors: differs from the committed one"
  fi
fi

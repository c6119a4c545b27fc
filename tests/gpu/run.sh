#!/usr/bin/env bash
# Runs on a GPU machine what bundle.sh packed: prints a line for each check, `PASS name` or `FAIL name`, and `FIGURE ...`
# lines; the whole output of each goes to $OUT (or ./out). Exit code 0 where nothing failed.
#
#   bash .bundle/run.sh [kernels] [nccl] [weights] [models] [bench] [sft] [quickstart] [headkill]    default: all of them
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out=${OUT:-$PWD/out}; mkdir -p "$out"
what=" ${*:-kernels nccl weights models bench sft quickstart headkill} "
if [ -e files.tar.gz ]; then mkdir -p unpacked && tar -C unpacked -xzf files.tar.gz && cd unpacked; fi
work=$(mktemp -d)
export MANTA_REQUIRE_GPU=1
failed=0
wants() { [[ $what == *" $1 "* ]]; }
run() { ./with_libraries.sh "$@"; }

# check NAME SECONDS COMMAND...: one line from its exit code, its log in $OUT/NAME.log.
check() {
  local name=$1 limit=$2 start=$SECONDS; shift 2
  if [ ! -x "bin/$1" ]; then echo "SKIP $name: $1 is not in the bundle"; return; fi
  timeout -k 10 "$limit" ./with_libraries.sh "$@" >"$out/$name.log" 2>&1
  local rc=$?
  if [ $rc = 0 ]; then echo "PASS $name ($((SECONDS - start)) s)"; else
    echo "FAIL $name (exit code $rc, $((SECONDS - start)) s); its last lines:"; tail -n 15 "$out/$name.log" | sed 's/^/    /'
    failed=$((failed + 1))
  fi
}
# The cases of a GoogleTest program, a line each.
cases() { sed -nE 's/^\[       OK \] ([^ ]+).*/PASS \1/p; s/^\[  FAILED  \] ([^ ,]+).*\(.*/FAIL \1/p; s/^\[  SKIPPED \] ([^ ]+).*\(.*/SKIP \1/p' "$out/$1.log"; }

nvidia-smi --query-gpu=index,name,memory.total,driver_version --format=csv,noheader 2>/dev/null | sed 's/^/FIGURE GPU /'
if wants kernels; then check kernels 300 gpu_kernels_test; cases kernels; grep -E "worst error|differ" "$out/kernels.log" | sort | uniq | tail -n 100 >"$out/kernels_errors.txt"; fi
if wants nccl; then check nccl 240 gpu_nccl_test; cases nccl; grep -E "^  (weights|rank)" "$out/nccl.log" | sed 's/^ */FIGURE /'; fi
if wants weights; then check weights 240 gpu_weights_test; cases weights; grep -E "^  (weights|a peer|learned|joining)" "$out/weights.log" | sed 's/^ */FIGURE /'; fi
if wants models; then
  for dtype in fp32 bf16; do
    check "models_$dtype" 240 golden_models goldens/models --device cuda --dtype $dtype
    grep -E "^(FAIL|passed=)" "$out/models_$dtype.log" | head -n 30 | sed "s/^passed/FIGURE models_$dtype passed/"
  done
fi
if wants bench; then check bench 200 gpu_bench; grep ^FIGURE "$out/bench.log"; fi
# A run of the whole system. NAME SECONDS COMMAND...; its numbers, and where it failed the workers' logs, go to $OUT.
system() {
  local name=$1; check "$@"
  grep -iE "accuracy|loss|step time|tok/s|seconds" "$out/$name.log" 2>/dev/null | tail -n 8 | sed "s/^/FIGURE $name /"
  grep -rhoE "weights (come by|do not go|did not come).*" "$work/$name" --include='gen-*.log' 2>/dev/null | sort | uniq -c | sed "s/^ */FIGURE $name generators' logs: /"
  find "$work/$name" -name metrics.jsonl -exec cp {} "$out/$name.metrics.jsonl" \; 2>/dev/null
  sed -nE 's/.*"timing\/train\/weight_sync": ?([0-9.e+-]+).*/\1/p' "$out/$name.metrics.jsonl" 2>/dev/null | sort -g |
    awk -v name="$name" '{ v[NR] = $1 } END { if (NR) printf "FIGURE %s weight sync: median %.2f ms over %d steps\n", name, 1e3 * v[int((NR + 1) / 2)], NR }'
  find "$work/$name" -path '*logs/*.log' -exec tail -n 20 {} + >"$out/$name.workers.log" 2>/dev/null
}
sft_weights() { ls -d "$work"/sft_checkpoints/step_*/policy/weights 2>/dev/null | sort -V | tail -n 1; }
model=assets/quickstart/model
if wants sft || { { wants quickstart || wants headkill; } && [ ! -d $model ]; }; then
  system sft 240 manta run configs/quickstart_sft.yaml cluster.device=cuda logger.log_dir="$work/sft" \
    checkpointing.enabled=true checkpointing.checkpoint_dir="$work/sft_checkpoints"
fi
if wants quickstart && [ ! -d $model ] && [ -z "$(sft_weights)" ]; then echo "SKIP quickstart: there is no model to start from"; elif wants quickstart; then
  [ -d $model ] || model=$(sft_weights)
  system quickstart 300 manta run configs/quickstart_grpo.yaml cluster.device=cuda logger.log_dir="$work/quickstart" \
    checkpointing.checkpoint_dir="$work/grpo_checkpoints" policy.model_name="$model"
  if grep -rqs "weights come by cuda_ipc" "$work/quickstart" --include='gen-*.log'; then echo "PASS quickstart_weights_by_cuda_ipc"; else
    echo "FAIL quickstart_weights_by_cuda_ipc"; failed=$((failed + 1))
  fi
  if [ "$(nvidia-smi -L 2>/dev/null | wc -l)" -ge 2 ]; then
    # The trainer on one GPU, a generator on it and one on the other.
    system quickstart_two_gpus 200 manta run configs/quickstart_grpo.yaml cluster.device=cuda logger.log_dir="$work/quickstart_two_gpus" \
      checkpointing.checkpoint_dir="$work/grpo2_checkpoints" policy.model_name="$model" cluster.trainer_ranks=1 cluster.generators=2 \
      grpo.max_num_steps=30
    if grep -rqs "weights come by nccl" "$work/quickstart_two_gpus" --include='gen-*.log'; then echo "PASS quickstart_weights_by_nccl"; else
      echo "FAIL quickstart_weights_by_nccl"; failed=$((failed + 1))
    fi
  fi
fi
# kill_heads FOLDER STEP...: kill -9 of the controller of the run in FOLDER as each step's metrics are written.
kill_heads() {
  local folder=$1 step; shift
  for step; do
    for _ in $(seq 3000); do
      [ "$(cat "$folder"/exp_*/metrics.jsonl 2>/dev/null | wc -l)" -ge "$step" ] && break
      sleep 0.1
    done
    pgrep -x manta-train >>"$out/headkill.trainers"
    kill -9 "$(cat "$folder"/exp_*/controller.pid)" && echo "killed after step $step" >>"$out/headkill.kills"
  done
}
if wants headkill; then
  [ -d $model ] || model=$(sft_weights)
  kill_heads "$work/headkill" 200 500 &
  killer=$!
  system headkill 300 manta run configs/quickstart_grpo.yaml cluster.device=cuda logger.log_dir="$work/headkill" \
    checkpointing.checkpoint_dir="$work/headkill_checkpoints" policy.model_name="$model"
  kill $killer 2>/dev/null
  if [ "$(wc -l 2>/dev/null <"$out/headkill.kills")" = 2 ] && [ "$(sort -u "$out/headkill.trainers" | wc -l)" = 1 ]; then
    echo "PASS headkill_trainer_lived_on"; else echo "FAIL headkill_trainer_lived_on"; failed=$((failed + 1))
  fi
fi
echo "failed=$failed"
[ $failed = 0 ]

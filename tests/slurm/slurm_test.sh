#!/usr/bin/env bash
# deploy/slurm/manta.sbatch on a real slurmctld, slurmd and munge: a run to its end, a time limit and a requeue that
# resumes, a scancel that leaves nothing, and a failing run whose exit code Slurm reports. Skipped (77) where Slurm's
# daemons are not there.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/slurm/cluster.sh
slurm_find || exit 77
bin=${MANTA_BUILD_DIR:-$PWD/build}/bin
work=$(mktemp -d "${TMPDIR:-/tmp}/slurm.XXXXXX")
failures=0
fail() { echo "FAIL $*"; failures=$((failures + 1)); }
ok() { echo "ok   $*"; }
finish() {
  slurm_stop
  [ $failures = 0 ] && rm -rf "$work"
}
trap finish EXIT
slurm_start "$work/slurm" || exit 1

export MANTA_BIN=$bin MANTA_ROOT=$work/runs MANTA_TEST_MARK=slurm-test-$$
patience=${SLURM_TEST_PATIENCE:-240}
# A few steps on small batches: it is Slurm that is under test.
small="grpo.num_prompts_per_step=4 grpo.num_generations_per_prompt=4 policy.train_global_batch_size=16 policy.train_micro_batch_size=16
  grpo.val_period=0 grpo.val_at_start=false grpo.val_at_end=false checkpointing.enabled=true checkpointing.save_period=2"
submit() { sbatch --parsable --output="$work/job-%j.out" deploy/slurm/manta.sbatch configs/quickstart_grpo.yaml $small "$@"; }
exit_code() { scontrol show job "$1" | sed -n 's/.* ExitCode=\([0-9:]*\).*/\1/p'; }
steps() { cat "$work/runs/$1/logs"/exp_*/metrics.jsonl 2>/dev/null | grep -c '"train/loss"'; }
left() {  # processes of the test's runs
  local environ
  for environ in /proc/[0-9]*/environ; do
    grep -qz "^MANTA_TEST_MARK=$MANTA_TEST_MARK$" "$environ" 2>/dev/null && grep -qz "^SLURM_JOB_ID=$1$" "$environ" 2>/dev/null &&
      tr '\0' ' ' <"${environ%environ}cmdline" && echo
  done
}

# 1. To its end.
id=$(submit grpo.max_num_steps=2)
slurm_wait "$id" "COMPLETED|FAILED" "$patience" || fail "the run does not end"
if [ "$(slurm_state "$id")" = COMPLETED ] && [ "$(exit_code "$id")" = 0:0 ]; then ok "a run completes"; else
  fail "a run is $(slurm_state "$id"), exit code $(exit_code "$id")"; tail -n 20 "$work/job-$id.out"; fi

# 2. Near its time limit a run is stopped and requeued, and goes on from its checkpoint.
id=$(submit grpo.max_num_steps=400)
for _ in $(seq "$patience"); do [ "$(ls "$work/runs/$id/checkpoints" 2>/dev/null | grep -c '^step_')" -gt 0 ] && break; sleep 1; done
before=$(ls "$work/runs/$id/checkpoints" 2>/dev/null | sed -n 's/^step_//p' | sort -n | tail -1)
[ -n "$before" ] || fail "no checkpoint was written"
scancel --batch --signal=USR1 "$id" || fail "the signal of the time limit"  # what Slurm sends 120 s before it
for _ in $(seq "$patience"); do grep -q "start 2:" "$work/job-$id.out" 2>/dev/null && break; sleep 1; done
for _ in $(seq "$patience"); do
  [ "$(ls -d "$work/runs/$id/logs"/exp_* 2>/dev/null | wc -l)" -ge 2 ] && [ -s "$(ls -d "$work/runs/$id/logs"/exp_* | tail -1)/metrics.jsonl" ] && break
  sleep 1
done
first=$(sed -n '1s/.*"step":[ ]*\([0-9]*\).*/\1/p' "$(ls -d "$work/runs/$id/logs"/exp_* | tail -1)/metrics.jsonl")
if [ -n "$first" ] && [ "$first" -gt "$before" ]; then ok "a requeued run goes on at step $first, from the checkpoint of step $before or later"; else
  fail "after the requeue the first step is '$first', the checkpoint was of step $before"; tail -n 20 "$work/job-$id.out"; fi

# 3. scancel leaves nothing.
scancel "$id"
slurm_wait "$id" "CANCELLED" 60 || fail "scancel"
for _ in $(seq 60); do [ -z "$(left "$id")" ] && break; sleep 0.5; done
if [ -z "$(left "$id")" ]; then ok "scancel leaves nothing"; else fail "scancel leaves:"; left "$id"; fi

# 4. A failing run's exit code.
id=$(submit grpo.max_num_stepz=2)
slurm_wait "$id" "FAILED|COMPLETED" "$patience" || fail "a failing run does not end"
if [ "$(exit_code "$id")" = 64:0 ]; then ok "a wrong configuration's exit code is what Slurm says: 64"; else
  fail "exit code $(exit_code "$id"), expected 64:0"; tail -n 5 "$work/job-$id.out"; fi

[ $failures = 0 ] || { echo "$failures failures; the folder is $work"; exit 1; }

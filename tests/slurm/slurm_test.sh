#!/usr/bin/env bash
# deploy/slurm/manta.sbatch on a real slurmctld, munge and two slurmds: a run over two nodes to its end; attaching to one
# that runs; a controller that is killed; a time limit and a requeue that resumes; a scancel that leaves nothing; failing
# runs whose exit codes Slurm reports. Skipped (77) where Slurm's daemons are not there.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. tests/slurm/cluster.sh
slurm_find || exit 77
export MANTA_BIN=${MANTA_BIN:-${MANTA_BUILD_DIR:-$PWD/build}/bin}
mkdir -p "${TMPDIR:-/tmp}"
work=$(mktemp -d "${TMPDIR:-/tmp}/slurm.XXXXXX")
failures=0
fail() { echo "FAIL $*"; failures=$((failures + 1)); }
ok() { echo "ok   $* (${SECONDS} s)"; }
finish() {
  slurm_stop
  [ $failures = 0 ] && rm -rf "$work"
}
trap finish EXIT
# At an address beyond loopback, where this machine has one: nodes show each other certificates then.
slurm_start "$work/slurm" "${SLURM_TEST_ADDRESS-$(hostname -I | cut -d' ' -f1)}" || exit 1

export MANTA_ROOT=$work/runs MANTA_TEST_MARK=slurm-test-$$
patience=${SLURM_TEST_PATIENCE:-120}
# The quickstart's recipe, a few steps on small batches: it is Slurm that is under test. Over two nodes the trainer has a rank
# on each; with two CPU workers a node the generator finds room beside one of them.
small="grpo.num_prompts_per_step=4 grpo.num_generations_per_prompt=4 policy.train_global_batch_size=16 policy.train_micro_batch_size=16
  grpo.val_period=0 grpo.val_at_start=false grpo.val_at_end=false checkpointing.enabled=true checkpointing.save_period=2"
submit() {  # NODES [key=value ...]
  local nodes=$1
  shift
  [ "$nodes" = 1 ] && unset MANTA_CPU_SLOTS || export MANTA_CPU_SLOTS=2
  # shellcheck disable=SC2086
  sbatch --parsable --nodes="$nodes" --output="$work/job-%j.out" deploy/slurm/manta.sbatch configs/quickstart_grpo.yaml $small "$@"
}
attach() { local id=$1; shift; srun --overlap --jobid="$id" -N1 -n1 "$work/runs/$id/manta" "$@"; }
exit_code() { scontrol show job "$1" | sed -n 's/.* ExitCode=\([0-9:]*\).*/\1/p'; }
newest() { ls "$work/runs/$1/checkpoints" 2>/dev/null | sed -n 's/^step_//p' | sort -n | tail -1; }
# Until `"$@"` succeeds.
until_true() {
  local end=$((SECONDS + patience))
  until "$@" 2>/dev/null; do [ $SECONDS -lt $end ] || return 1; sleep 0.3; done
}
has_checkpoint_after() { local step; step=$(newest "$1"); [ "${step:-0}" -gt "$2" ]; }
left() {  # processes of job $1
  local environ
  for environ in /proc/[0-9]*/environ; do
    grep -qz "^MANTA_TEST_MARK=$MANTA_TEST_MARK$" "$environ" 2>/dev/null && grep -qz "^SLURM_JOB_ID=$1$" "$environ" 2>/dev/null &&
      tr '\0' ' ' <"${environ%environ}cmdline" && echo
  done
}
nothing_left() { [ -z "$(left "$1")" ] && ! ls -d "${TMPDIR:-/tmp}"/manta-"$1".* >/dev/null 2>&1; }
pid_of() {  # the pid of actor $2 of job $1
  local pid
  pid=$(attach "$1" actors --json 2>/dev/null | python3 -c 'import json, sys
print(*[a["pid"] for a in json.load(sys.stdin)["actors"] if a["actor_id"].endswith("'"$2"'")])')
  [[ $pid =~ ^[0-9]+$ ]] && [ "$pid" -gt 1 ] && echo "$pid"
}

# 1. Over two nodes, to its end.
id=$(submit 2 grpo.max_num_steps=4)
slurm_wait "$id" "COMPLETED|FAILED" "$patience" || fail "the run does not end"
start=$work/runs/$id/start-1
if [ "$(slurm_state "$id")" = COMPLETED ] && [ "$(exit_code "$id")" = 0:0 ]; then ok "a run over two nodes completes"; else
  fail "a run is $(slurm_state "$id"), exit code $(exit_code "$id")"; tail -n 20 "$work/job-$id.out" "$start"/logs/*; fi
grep -q "/train-0 " "$start/logs/node-n1.log" && grep -q "/train-1 " "$start/logs/node-n2.log" && ok "the trainer had a rank on each" ||
  fail "where the workers were: $(grep ended "$start"/logs/node-*.log)"
[ -s "$work/runs/$id/logs/latest/logs/train-1.log" ] && [ -e "$work/runs/$id/logs/latest/logs/gen-0.log" ] || fail "a rank has no log"
until_true nothing_left "$id" || fail "a run that has ended leaves: $(left "$id") $(ls -d "${TMPDIR:-/tmp}"/manta-"$id".*)"

# 2. Somebody attaches; and a controller that is killed is started again.
id=$(submit 2 grpo.max_num_steps=4000)
until_true has_checkpoint_after "$id" 0 || fail "no checkpoint was written"
status=$(attach "$id" status) || fail "attaching"
[[ $status == *train-1*n2* ]] && ok "attaching shows the run" || fail "attaching shows: $status"
step=$(newest "$id")
head=$(cat "$work/runs/$id/latest/controller.pid")
[ "${head:-0}" -gt 1 ] && kill -KILL "$head" || fail "the controller's pid"
until_true has_checkpoint_after "$id" $((step + 3)) && [ "$(slurm_state "$id")" = RUNNING ] && ok "a run outlives a kill of its controller" ||
  { fail "after a kill of its controller the run is $(slurm_state "$id")"; tail -n 20 "$work/job-$id.out" "$work/runs/$id/latest/logs/controller.log"; }

# 3. Near its time limit a run is stopped and requeued, and goes on from its checkpoint.
before=$(newest "$id")
scancel --batch --signal=USR1 "$id" || fail "the signal of the time limit"  # what Slurm sends 120 s before it
resumed_from() { sed -n '/start 2:/,$ s/^resuming after step \([0-9]*\) .*/\1/p' "$work/job-$id.out" | grep .; }
until_true eval 'resumed_from >/dev/null' || fail "no second start"
resumed=$(resumed_from)
if [ "${resumed:-0}" -ge "$before" ]; then ok "a requeued run goes on from the checkpoint of step $resumed"; else
  fail "after the requeue it goes on from step '$resumed', the checkpoint was of step $before"; tail -n 20 "$work/job-$id.out"; fi

# 4. scancel leaves nothing.
scancel "$id"
slurm_wait "$id" "CANCELLED" 60 || fail "scancel"
if until_true nothing_left "$id"; then ok "scancel leaves nothing"; else fail "scancel leaves: $(left "$id") $(ls -d "${TMPDIR:-/tmp}"/manta-"$id".*)"; fi

# 5. Exit codes of failing runs: a wrong configuration, and a worker that dies.
wrong=$(submit 1 grpo.max_num_stepz=2)
id=$(submit 1 grpo.max_num_steps=4000)
until_true has_checkpoint_after "$id" 0 || fail "no checkpoint was written"
worker=$(pid_of "$id" train-1) && kill -KILL "$worker" || fail "the worker's pid"
for job in "$wrong 64" "$id 69"; do
  set -- $job
  slurm_wait "$1" "FAILED|COMPLETED" "$patience" || fail "a failing run does not end"
  if [ "$(exit_code "$1")" = "$2:0" ]; then ok "a failing run's exit code is what Slurm says: $2"; else
    fail "exit code $(exit_code "$1"), expected $2:0"; tail -n 5 "$work/job-$1.out"; fi
done

[ $failures = 0 ] || { echo "$failures failures; the folder is $work"; exit 1; }

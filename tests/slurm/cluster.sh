# A Slurm cluster for a test, all of it on this machine: munged, slurmctld and two slurmds of Debian's packages, with keys,
# sockets, ports, logs and state in a folder of their own. Source it; needs root.
#
#   slurm_find || exit 77        # where the daemons are not there
#   slurm_start DIR [ADDRESS]    # exports SLURM_CONF, so sbatch and the others speak to it. Nodes n1 and n2, at ADDRESS; the
#                                # second in a PID namespace where that is allowed: as another host's, its processes share
#                                # no memory with the first's
#   slurm_stop
#
# They are taken from where Debian installs them, or from a folder that the packages were unpacked into: SLURM_ROOT, or
# .deps/slurm (scripts/fetch_slurm.sh).

slurm_find() {
  local root=${SLURM_ROOT:-}
  [ -n "$root" ] || [ -x /usr/sbin/slurmctld-wlm ] || [ ! -d .deps/slurm ] || root=$PWD/.deps/slurm
  slurm_bin=$root/usr/bin slurm_sbin=$root/usr/sbin
  slurm_plugins=$root/usr/lib/x86_64-linux-gnu/slurm-wlm
  [ -z "$root" ] || export LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu:$slurm_plugins PATH=$slurm_bin:$PATH
  for program in "$slurm_sbin/munged" "$slurm_sbin/slurmctld-wlm" "$slurm_sbin/slurmd-wlm" "$slurm_bin/sbatch"; do
    [ -x "$program" ] || { echo "SKIP: needs the capability slurm ($program; scripts/fetch_slurm.sh)"; return 1; }
  done
  [ "$(id -u)" = 0 ] || { echo "SKIP: needs the capability root (slurmd)"; return 1; }
}

slurm_start() {
  local dir=$1 address=${2:-127.0.0.1} host ports
  host=$(hostname -s)
  mkdir -p "$dir"/{munge,state,spool,log}
  chmod 755 "$dir" "$dir"/{munge,log}
  slurm_pids=()
  dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 status=none
  chmod 400 "$dir/munge/key"
  "$slurm_sbin/munged" --foreground --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" \
    --pid-file="$dir/munge/pid" --log-file="$dir/munge/log" --seed-file="$dir/munge/seed" >"$dir/log/munged" 2>&1 &
  slurm_pids+=($!)
  read -r -a ports <<<"$(python3 -c 'import socket
s = [socket.socket() for _ in range(3)]
[x.bind(("127.0.0.1", 0)) for x in s]
print(*[x.getsockname()[1] for x in s])')"
  echo "CgroupPlugin=cgroup/v1" >"$dir/cgroup.conf"
  cat >"$dir/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=${ports[0]}
AuthType=auth/munge
AuthInfo=socket=$dir/munge/socket,cred_expire=10
CredType=cred/munge
PluginDir=$slurm_plugins
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/slurmd-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=10
MinJobAge=300
SchedulerParameters=batch_sched_delay=1,sched_interval=2
NodeName=n1 NodeHostname=$host NodeAddr=$address Port=${ports[1]} CPUs=$(nproc) State=UNKNOWN
NodeName=n2 NodeHostname=$host NodeAddr=$address Port=${ports[2]} CPUs=$(nproc) State=UNKNOWN
PartitionName=test Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
CONF
  export SLURM_CONF=$dir/slurm.conf
  for _ in $(seq 50); do [ -S "$dir/munge/socket" ] && break; sleep 0.1; done
  "$slurm_sbin/slurmctld-wlm" -D -f "$SLURM_CONF" >"$dir/log/slurmctld.out" 2>&1 &
  slurm_pids+=($!)
  local node apart=() namespace=(unshare --pid --fork --kill-child --mount-proc --propagation unchanged)
  for node in n1 n2; do
    mkdir -p "$dir/spool/$node"
    [ $node = n1 ] || ! "${namespace[@]}" true 2>/dev/null || apart=("${namespace[@]}")
    "${apart[@]}" "$slurm_sbin/slurmd-wlm" -D -N "$node" -f "$SLURM_CONF" -d "$slurm_sbin/slurmstepd-wlm" >"$dir/log/slurmd-$node.out" 2>&1 &
    slurm_pids+=($!)
  done
  for _ in $(seq 150); do
    [ "$(sinfo -h -N -o %T 2>/dev/null | grep -c idle)" = 2 ] && return 0
    sleep 0.2
  done
  echo "the Slurm cluster did not start:"
  tail -n 5 "$dir"/log/*
  return 1
}

slurm_stop() {
  local pid
  for pid in "${slurm_pids[@]:-}"; do [ -z "$pid" ] || kill "$pid" 2>/dev/null; done
  # A namespace's first process heeds no SIGTERM.
  for _ in $(seq 20); do [ -n "$(jobs -pr)" ] && sleep 0.1; done
  for pid in "${slurm_pids[@]:-}"; do [ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null; done
  for pid in "${slurm_pids[@]:-}"; do [ -z "$pid" ] || wait "$pid" 2>/dev/null; done
  slurm_pids=()
  return 0
}

# STATE of job ID: PENDING, RUNNING, COMPLETED, FAILED, CANCELLED ...
slurm_state() { scontrol show job "$1" | sed -n 's/^ *JobState=\([A-Z_]*\).*/\1/p'; }
# Waits until job $1 is in a state that matches $2, for $3 seconds.
slurm_wait() {
  local end=$((SECONDS + $3))
  while [ $SECONDS -lt $end ]; do
    [[ $(slurm_state "$1") =~ ^($2)$ ]] && return 0
    sleep 0.3
  done
  echo "job $1 is $(slurm_state "$1"), not $2"
  return 1
}

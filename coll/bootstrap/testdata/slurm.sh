#!/bin/sh
# Starts or stops a Slurm cluster on this host, for tests:
#
#	slurm.sh start DIR    then SLURM_CONF=DIR/slurm.conf srun -N 2 -n 4 …
#	slurm.sh stop DIR
#
# All of it (daemons, keys, sockets, logs) lives in DIR, which is owned by root
# and on no network file system. It has SLURM_NODES nodes, n1, n2, …, by default
# two; the ports are PORT … PORT+SLURM_NODES, from 17000 by default. With SLURM_GPUS
# each node has that many GPUs to give away, which are empty files. What EXTRA has
# is added to slurm.conf.
set -eu
cmd=$1
dir=$2
port=${PORT:-17000}
nodes=$(seq "${SLURM_NODES:-2}")

# running tells whether a process is there and has not ended (a zombie has).
running() {
	grep -q '^State:.[^ZX]' "/proc/$1/status" 2>/dev/null
}

stop() {
	for f in $(printf 'n%s.pid ' $nodes) slurmctld.pid munged.pid; do
		[ -s "$dir/$f" ] || continue
		pid=$(cat "$dir/$f")
		kill "$pid" 2>/dev/null || true
		i=0
		while running "$pid" && [ $i -lt 50 ]; do
			i=$((i + 1))
			sleep 0.1
		done
	done
}

start() {
	host=$(hostname -s)
	mkdir -p "$dir/state"
	# munged insists on directories that others cannot write to.
	mkdir -p -m 0755 "$dir/munge"
	dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 2>/dev/null
	chmod 0400 "$dir/munge/key"
	munged --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munged.pid" \
		--log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
	cat >"$dir/slurm.conf" <<-CONF
	ClusterName=test
	SlurmctldHost=$host(127.0.0.1)
	SlurmctldPort=$port
	SlurmUser=root
	SlurmdUser=root
	AuthType=auth/munge
	AuthInfo=socket=$dir/munge/socket
	CredType=cred/munge
	StateSaveLocation=$dir/state
	SlurmdSpoolDir=$dir/%n
	TmpFS=$dir/%n
	SlurmctldPidFile=$dir/slurmctld.pid
	SlurmdPidFile=$dir/%n.pid
	SlurmctldLogFile=$dir/slurmctld.log
	SlurmdLogFile=$dir/%n.log
	ProctrackType=proctrack/linuxproc
	TaskPlugin=task/none
	SelectType=select/cons_tres
	SelectTypeParameters=CR_Core
	ReturnToService=2
	MpiDefault=none
	PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
	SlurmdParameters=config_overrides
	${EXTRA-}
	CONF
	gres=
	if [ -n "${SLURM_GPUS-}" ]; then
		for i in $(seq 0 $((SLURM_GPUS - 1))); do : >"$dir/gpu$i"; done
		echo "Name=gpu File=$dir/gpu[0-$((SLURM_GPUS - 1))]" >"$dir/gres.conf"
		echo GresTypes=gpu >>"$dir/slurm.conf"
		gres=Gres=gpu:$SLURM_GPUS
	fi
	for i in $nodes; do
		mkdir -p "$dir/n$i"
		echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + i)) CPUs=64 $gres State=UNKNOWN" >>"$dir/slurm.conf"
	done
	SLURM_CONF=$dir/slurm.conf
	export SLURM_CONF
	slurmctld -f "$SLURM_CONF"
	for i in $nodes; do slurmd -f "$SLURM_CONF" -N "n$i"; done
	i=0
	until [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = "${SLURM_NODES:-2}" ]; do
		i=$((i + 1))
		if [ $i -gt 100 ]; then
			sinfo -N -l
			tail -n 5 "$dir"/*.log
			stop
			exit 1
		fi
		sleep 0.2
	done
}

$cmd

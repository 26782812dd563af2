#!/bin/sh
# Starts or stops a Slurm cluster of two nodes on this host, for tests:
#
#	slurm.sh start DIR    then SLURM_CONF=DIR/slurm.conf srun -N 2 -n 4 …
#	slurm.sh stop DIR
#
# All of it (daemons, keys, sockets, logs) lives in DIR, which is owned by root
# and on no network file system. The ports are PORT … PORT+2, 17000 by default.
# What EXTRA has is added to slurm.conf.
set -eu
cmd=$1
dir=$2
port=${PORT:-17000}

# running tells whether a process is there and has not ended (a zombie has).
running() {
	grep -q '^State:.[^ZX]' "/proc/$1/status" 2>/dev/null
}

stop() {
	for f in n1.pid n2.pid slurmctld.pid munged.pid; do
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
	mkdir -p "$dir/state" "$dir/n1" "$dir/n2"
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
	NodeName=n1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=64 State=UNKNOWN
	NodeName=n2 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=64 State=UNKNOWN
	PartitionName=test Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
	SlurmdParameters=config_overrides
	${EXTRA-}
	CONF
	SLURM_CONF=$dir/slurm.conf
	export SLURM_CONF
	slurmctld -f "$SLURM_CONF"
	slurmd -f "$SLURM_CONF" -N n1
	slurmd -f "$SLURM_CONF" -N n2
	i=0
	until [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]; do
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

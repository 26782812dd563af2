#!/bin/sh
# The first process of a Slurm cluster, in namespaces of its own: with it end all
# others of the cluster. It starts the daemons, says "up", and stays.
#
#	slurm.sh DIR NODES GPUS [LINES]
#
# All of it (daemons, keys, sockets, logs) lives in DIR, which is owned by root
# and on no network file system. The nodes are n1, n2, …; each has that many GPUs
# to give away, which are empty files. LINES are added to slurm.conf.
set -eu
dir=$1
nodes=$2
gpus=$3
port=17000 # nobody else is on this network
# An address that is not the loopback's: without one names do not resolve.
ip link set lo up
ip link add name net0 type veth peer name net1
ip address add 10.89.0.1/24 dev net0
ip link set net0 up
ip link set net1 up
host=$(hostname -s)
mkdir -p "$dir/state"
# munged insists on directories that others cannot write to.
mkdir -m 0755 "$dir/munge"
dd if=/dev/urandom of="$dir/munge/key" bs=128 count=1 2>/dev/null
chmod 0400 "$dir/munge/key"
munged --force --key-file="$dir/munge/key" --socket="$dir/munge/socket" --pid-file="$dir/munged.pid" \
	--log-file="$dir/munge/log" --seed-file="$dir/munge/seed"
cat >"$SLURM_CONF" <<-CONF
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
${4-}
CONF
gres=
if [ "$gpus" -gt 0 ]; then
	for i in $(seq 0 $((gpus - 1))); do : >"$dir/gpu$i"; done
	echo "Name=gpu File=$dir/gpu[0-$((gpus - 1))]" >"$dir/gres.conf"
	echo GresTypes=gpu >>"$SLURM_CONF"
	gres=Gres=gpu:$gpus
fi
for i in $(seq "$nodes"); do
	mkdir -p "$dir/n$i"
	echo "NodeName=n$i NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + i)) CPUs=64 $gres State=UNKNOWN" >>"$SLURM_CONF"
done
slurmctld -f "$SLURM_CONF"
for i in $(seq "$nodes"); do slurmd -f "$SLURM_CONF" -N "n$i"; done
i=0
until [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = "$nodes" ]; do
	i=$((i + 1))
	if [ $i -gt 1500 ]; then # five minutes: something is wrong
		sinfo -N -l >&2
		tail -n 5 "$dir"/*.log >&2
		exit 1
	fi
	sleep 0.2
done
echo up
while :; do # and collects those who have nobody else
	sleep 1000 &
	wait $!
done

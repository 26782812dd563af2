package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// good is a job that passes.
func good(t testing.TB, scheduler, run string) string {
	t.Helper()
	o := Options{Profile: "h100-8x", Scheduler: scheduler, Image: image, Run: run}
	if scheduler == Hostfile {
		o.Hosts = []string{"n1", "n2"}
	}
	text, err := Render(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestMutations: one change of a good job is found, on its line.
func TestMutations(t *testing.T) {
	for _, tt := range []struct{ run, scheduler, old, new, want string }{
		{RunColl, MPIOperator, "  slotsPerWorker: 8", "  slotsPerWorker: 4", "mpirun starts 64 processes, but 4 on each of 8 nodes are 32"},
		{RunColl, MPIOperator, "  slotsPerWorker: 8", "  slotsPerWorker: eight", "skipped: spec.slotsPerWorker: the document is not checked"},
		{RunColl, MPIOperator, "  slotsPerWorker: 8", "  slotPerWorker: 8", `warning: spec.slotPerWorker: unknown field`},
		{RunColl, MPIOperator, `- "64"`, `- "60"`, "warning: spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].command[0]: mpirun starts 60 processes"},
		{RunCertify, MPIOperator, "      replicas: 1\n", "      replicas: 2\n", "must be 1"},
		{RunCertify, MPIOperator, "mpiImplementation: OpenMPI", "mpiImplementation: LAM", "LAM"},
		{RunCertify, MPIOperator, "cleanPodPolicy: Running", "cleanPodPolicy: Sometimes", "Sometimes"},
		{RunCertify, MPIOperator, "                nvidia.com/gpu: \"8\"\n                rdma/ib: \"1\"\n              requests:", "                nvidia.com/gpu: \"8\"\n              requests:", "the request 1 has no limit"},
		{RunCertify, MPIOperator, "                - IPC_LOCK", "                - NET_ADMIN", "warning: spec.mpiReplicaSpecs.Worker.template.spec.containers[0].securityContext: it asks for rdma/ib"},
		{RunCertify, MPIOperator, "mountPath: /dev/shm", "mountPath: /shm", "nothing is mounted at /dev/shm for 8 GPUs"},
		{RunCertify, MPIOperator, "kubeflow.org/v2beta1", "kubeflow.org/v1alpha2", "write kubeflow.org/v2beta1"},
		{RunCertify, MPIOperator, "memory: 960Gi", "memory: 960GiB", "memory: \"960GiB\" is no quantity"},
		{RunCertify, MPIOperator, "          labels:\n            app.kubernetes.io/instance", "          lables:\n            app.kubernetes.io/instance", `.template.metadata.lables: unknown field`},
		{RunCertify, JobSet, "value: \"8\"", "value: \"64\"", "it is 64, but 8 pods of 1 processes are 8"},
		{RunColl, JobSet, "value: \"64\"", "value: \"32\"", "job.yaml:91:24: spec.replicatedJobs[0].template.spec.template.spec.containers[0].env[2].value: it is 32, but 8 pods of 8 processes are 64"},
		{RunColl, JobSet, "completions: 8", "completions: 4", "it is 64, but 4 pods of 8 processes are 32"},
		{RunColl, JobSet, "-node-0-0.", "-node-0-8.", "no pod of the set is called assay-h100-8x-coll-8x8-node-0-8."},
		{RunColl, JobSet, "-node-0-0.", "-node-00-0.", "no pod of the set is called assay-h100-8x-coll-8x8-node-00-0."},
		{RunColl, JobSet, "-node-0-0.assay-h100-8x-coll-8x8", "-node-0-0", "no pod of the set is called assay-h100-8x-coll-8x8-node-0-0"},
		{RunColl, JobSet, "  - name: node\n", "  - name: nodes\n", "no pod of the set is called assay-h100-8x-coll-8x8-node-0-0.assay-h100-8x-coll-8x8"},
		{RunColl, JobSet, "enableDNSHostnames: true", "enableDNSHostnames: false", "the set has no names for its pods"},
		{RunColl, JobSet, "enableDNSHostnames: true", "subdomain: other", "no pod of the set is called"},
		{RunColl, JobSet, "mountPath: /dev/shm", "mountPath: /shm", "/dev/shm"},
		{RunColl, JobSet, "jobset.x-k8s.io/v1alpha2", "jobset.x-k8s.io/v1alpha1", "write jobset.x-k8s.io/v1alpha2"},
		{RunColl, SlurmBare, "#SBATCH --gpus-per-node=8", "#SBATCH --gpus-per-node=4", "that needs 8 GPUs, but there are 4"},
		{RunColl, SlurmBare, "-g 1", "-g 8", "that needs 64 GPUs, but there are 8"},
		{RunCertify, SlurmBare, "#SBATCH --exclusive", "true\n#SBATCH --exclusive", "after the first command"},
		{RunColl, Hostfile, "n2 slots=8", "n1 slots=8", "there already, on line"},
		{RunColl, Hostfile, "n2 slots=8", "n2 slots=0", "how many ranks"},
		{RunColl, Hostfile, "n2 slots=8", "n2 slots=4", "the first host 8"},
		// The two kinds of job: a process a GPU, and one a node.
		{RunCertify, SlurmBare, "--ntasks-per-node=1", "--ntasks-per-node=8", "8 processes a node, but harness certify takes one"},
		{RunCertify, SlurmBare, "srun ", "srun --ntasks-per-node=8 ", "8 processes a node, but harness certify takes one"},
		{RunCertify, SlurmBare, "harness certify --suite", "harness coll all_reduce", "7 of 8 GPUs are idle"},
		{RunColl, SlurmBare, "--ntasks-per-node=8", "--ntasks-per-node=1", "7 of 8 GPUs are idle"},
		{RunColl, SlurmBare, "harness coll all_reduce", "harness certify", "8 processes a node, but harness certify takes one"},
		{RunColl, MPIOperator, "- slot\n", "- ppr:1:node\n", "mpirun starts 64 processes, but 1 on each of 8 nodes are 8"},
		{RunCertify, MPIOperator, "- -np\n            - \"8\"", "- -np\n            - \"64\"", "mpirun starts 64 processes, but 1 on each of 8 nodes are 8"},
		{RunColl, MPIOperator, "            - coll\n", "            - certify\n", "8 processes a node, but harness certify takes one"},
		{RunCertify, Hostfile, "-np 2", "-np 16", "mpirun starts 16 processes, but 1 on each of 2 nodes are 2"},
		{RunColl, Hostfile, "harness coll all_reduce", "harness certify", "8 processes a node, but harness certify takes one"},
		{RunColl, Hostfile, "-np 16", "-np 17", "mpirun starts 17 processes, but 8 on each of 2 nodes are 16"},
	} {
		text := good(t, tt.scheduler, tt.run)
		changed := strings.Replace(text, tt.old, tt.new, 1)
		if changed == text {
			t.Errorf("%s: %q is not in the job:\n%s", tt.scheduler, tt.old, text)
			continue
		}
		name := map[string]string{SlurmBare: "job.slurm", SlurmEnroot: "job.slurm", MPIOperator: "job.yaml", JobSet: "job.yaml", Kubernetes: "job.yaml", Docker: "job.sh"}[tt.scheduler]
		found := Check([]File{{name, []byte(changed)}}, nil)
		hit := false
		for _, f := range found {
			hit = hit || strings.Contains(f.String(), tt.want) && f.Line > 0
		}
		if !hit {
			t.Errorf("%s, %q for %q: %v; want %q with a line", tt.scheduler, tt.new, tt.old, found, tt.want)
		}
	}
}

// batch returns a script for nodes of 8 GPUs.
func batch(nodes, tasks int, text string) string {
	return fmt.Sprintf("#!/bin/bash\n#SBATCH --nodes=%d\n#SBATCH --ntasks-per-node=%d\n#SBATCH --gpus-per-node=8\n%s\n", nodes, tasks, text)
}

// pod returns a Pod with GPUs; lines are further fields of its container.
func pod(gpus int, lines ...string) string {
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - name: c\n    resources: {limits: {nvidia.com/gpu: %d}}\n", gpus)
	for _, line := range lines {
		text += "    " + line + "\n"
	}
	return text
}

// mpiJob returns an MPIJob of two workers with 8 GPUs; worker and launcher are further fields
// of the containers.
func mpiJob(worker, launcher string) string {
	const replica = "    %s: {replicas: %d, template: {spec: {volumes: [{name: m, emptyDir: {medium: Memory}}], containers: [{name: c%s}]}}}\n"
	return "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: a}\nspec:\n  slotsPerWorker: 8\n  mpiReplicaSpecs:\n" +
		fmt.Sprintf(replica, "Launcher", 1, ", "+launcher) +
		fmt.Sprintf(replica, "Worker", 2, ", resources: {limits: {nvidia.com/gpu: 8}}, volumeMounts: [{name: m, mountPath: /dev/shm}]"+worker)
}

// jobSet returns a JobSet of two pods with 8 GPUs.
func jobSet(fields string) string {
	return "apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: a}\nspec:\n  replicatedJobs:\n  - name: w\n    template: {spec: {parallelism: 2, template: {spec: {hostIPC: true, containers: [{name: c, resources: {limits: {nvidia.com/gpu: 8}}, " + fields + "}]}}}}\n"
}

// TestRight: nothing is wrong with these.
func TestRight(t *testing.T) {
	for name, text := range map[string]string{
		"torchrun.sh":      batch(2, 1, "srun torchrun --nproc_per_node 8 --nnodes=2 train.py"),
		"gres.sh":          "#!/bin/bash\n#SBATCH -N 2 --gres=gpu:h100:8\n#SBATCH -n2\nsrun torchrun --nproc-per-node=gpu --nnodes=$SLURM_NNODES train.py",
		"accelerate.sh":    batch(2, 1, `srun bash -c 'accelerate launch --num_processes 16 --num_machines 2 --machine_rank $SLURM_NODEID train.py'`),
		"launcher.sh":      batch(2, 1, "N=2\nL=\"torchrun \\\n --nproc_per_node 8 --nnodes $N --node_rank \\$SLURM_PROCID\"\nsrun bash -c \"$L train.py\""),
		"c10d.sh":          batch(2, 1, "srun torchrun --nnodes 2 --nproc_per_node 8 --node_rank $SLURM_NODEID --rdzv_backend c10d train.py"),
		"loop.sh":          batch(2, 1, "for i in 0 1; do\n  srun -N1 -n1 torchrun --nnodes 2 --node_rank $i train.py &\ndone\nwait"),
		"comment.sh":       "#!/bin/bash\n#SBATCH --comment=\"with --nodez, --times\" --time=\"10:00\" -J 'a -nodes'\nsrun ./a",
		"devices.sh":       batch(1, 8, "export CUDA_VISIBLE_DEVICES=0\nsrun --gpus-per-task=1 ./all_reduce_perf -g 1"),
		"array.sh":         batch(2, 1, "A=(\n --nproc_per_node=8 # all\n --nnodes=2\n)\nsrun torchrun \"${A[@]}\" train.py"),
		"python.sh":        batch(2, 1, "srun python train.py -n 3 -g 16"),
		"deepspeed.sh":     batch(2, 1, "deepspeed --hostfile hosts --num_nodes 2 --num_gpus 8 train.py"),
		"one.sh":           batch(1, 1, "srun ./all_reduce_perf -g 8"),
		"heredoc.sh":       "#!/bin/bash\nset -e\ncat <<-'EOF' > job\n#!/bin/bash\n#SBATCH --nodes=2\n\tEOF\necho '\n#SBATCH --nodes=2'\nsbatch job",
		"words.sh":         batch(2, 8, "which mpirun || echo srun torchrun --nproc_per_node 64\nmodule load openmpi/mpirun"),
		"passed.sh":        batch(2, 8, "export NCCL_DEBUG=INFO NCCL_IB_HCA=mlx5_0,mlx5_1\nmpirun -np 16 --mca btl tcp,self -x NCCL_DEBUG -x NCCL_IB_HCA=$NCCL_IB_HCA ./all_reduce_perf -g 1"),
		"intel.sh":         batch(2, 8, "export NCCL_DEBUG=INFO\nmodule load intel-mpi\nmpirun -np 16 ./all_reduce_perf -g 1"),
		"tool.sh":          batch(2, 8, "export NCCL_DEBUG=INFO\nmpirun -N 1 bash -c 'echo $(hostname)'"),
		"dynamic.sh":       batch(2, 8, "export NCCL_DEBUG=INFO\nmpirun $ARGS ./all_reduce_perf -g 8"),
		"plugin.sh":        batch(2, 8, "export NCCL_IB_DISABLE=1 NCCL_NET_PLUGIN=ofi\nsrun ./all_reduce_perf"),
		"maybe.sh":         batch(2, 8, "if [ -z \"$IB\" ]; then\n  export NCCL_IB_DISABLE=1\nfi\nsrun ./all_reduce_perf"),
		"container.sh":     "#!/bin/bash\n#SBATCH --container-image nvcr.io\\#nvidia/pytorch:26.01\npython train.py",
		"name.yaml":        "apiVersion: batch/v1\nkind: Job\nmetadata: {generateName: a-}\nspec: {template: {spec: {containers: [{name: c}]}}}",
		"generate.yaml":    strings.Replace(mpiJob("", "command: [mpirun]"), "name: a", "generateName: a-", 1),
		"restart.yaml":     jobSet("command: [sleep, '1']"),
		"address.yaml":     jobSet("command: [torchrun, --nnodes=2, --nproc_per_node=8, a.py], env: [{name: MASTER_ADDR, value: a-w-0-0.a.default.svc.cluster.local}, {name: WORLD_SIZE, value: '2'}]"),
		"elsewhere.yaml":   jobSet("env: [{name: MASTER_ADDR, value: head.example.com}]"),
		"sshd.yaml":        mpiJob(", command: [/bin/sh, -c, 'mkdir -p /run/sshd; exec /usr/sbin/sshd -De']", "command: [mpirun, -np, '16', all_reduce_perf, -g, '1']"),
		"npernode.yaml":    mpiJob("", "command: [mpirun], args: [-np, '2', -npernode, '1', all_reduce_perf, -g, '8']"),
		"efa.yaml":         pod(1, "securityContext: {}") + "  - name: d\n    resources: {limits: {vpc.amazonaws.com/efa: 4}}\n",
		"repeat.yaml":      pod(1) + "---\n" + pod(1),
		"hosts":            "# hosts\nn1 slots=8 max_slots=8\nn2 slots = 8\n",
		"lines":            "n1\nn1\n10.0.0.2\nuser@n3\nn4 # last\n",
		"mpich":            "n1:8\nn2:8\n",
		"continued.sh":     batch(2, 8, "srun --mpi=pmix \\\n  ./all_reduce_perf \\\n  -b 8 -e 1G -n 20 -c 1"),
		"redirect.sh":      batch(2, 8, "srun ./all_reduce_perf -g 1 2>&1 >log | tee <(cat) <<<8"),
		"option.sh":        batch(2, 8, "mpirun --allow-run-as-root ./all_reduce_perf -n 20 -f 2 -g 1"),
		"hydra.sh":         "export NCCL_DEBUG=INFO\nmpirun -ppn 8 -f hosts ./all_reduce_perf",
		"lightning.sh":     batch(2, 4, "export MASTER_ADDR=localhost\nsrun --nodes=1 --ntasks=1 python prepare.py\nsrun bash -c 'torchrun --nnodes=2 --rdzv_endpoint=$HEAD:1 --nproc_per_node=2 a.py'"),
		"options.sh":       "#!/bin/bash\n#SBATCH -N2 -pgpu -Jtimes --exclusive=user --constraint=a --bb=x --site-plugin=y --time=1-00:00:00 --ntasks-per-n=8 # --ntask\n#SBATCH --time=<TIME>\n#SBATCH -t 20\nsrun ./a",
		"ports.sh":         batch(2, 1, "export MASTER_PORT=$((10000 + RANDOM % 1000)) CUDA_VISIBLE_DEVICES=$IDS\nsrun bash -c 'WORLD_SIZE=$SLURM_NTASKS RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID python a.py'"),
		"escaped.sh":       batch(1, 1, "# a \\ \necho a\\\\ \nsrun ./a"),
		"claims.yaml":      strings.Replace(pod(1), "limits: {nvidia.com/gpu: 1}", "claims: [{name: g, request: r}]", 1) + "  resourceClaims: [{name: g, resourceClaimTemplateName: elsewhere}]\n---\n" + strings.Replace(pod(1), "name: a}", "name: b}", 1),
		"labels.yaml":      "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\nspec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: a, b: c}}, spec: {containers: [{name: c}]}}}",
		"open.sh":          batch(2, 8, "A=()\nA=(a (b)\nsrun ./a"),
		"fraction.yaml":    strings.Replace(pod(1), "gpu: 1}", "gpu: 1, cpu: 500m, memory: 1.5Gi}, requests: {cpu: 0.1}", 1),
		"version.sh":       batch(2, 8, "export NCCL_DEBUG=INFO\nmpirun --version\nmpirun -np 16 -x NCCL_DEBUG ./all_reduce_perf -g 1"),
		"counted.sh":       batch(2, 8, "export NCCL_DEBUG=INFO\nN=$(wc -l < hosts)\nmpirun -np $N -x NCCL_DEBUG ./all_reduce_perf -g 1"),
		"coll.sh":          batch(2, 8, "export NCCL_DEBUG=INFO\nmpirun -np 16 --mca coll ^hcoll -x NCCL_DEBUG ./all_reduce_perf -g 1"),
		"named.sh":         batch(2, 8, "export NCCL_DEBUG=INFO\nENVS=$(echo ${!NCCL*} | tr ' ' ',')\nsrun --container-image=a.sqsh --container-env=\"$ENVS\" ./a"),
		"collected.sh":     batch(2, 8, "export NCCL_DEBUG=INFO\nmpirun -np 16 -x $ENV_VARS ./all_reduce_perf -g 1"),
		"pet.sh":           batch(2, 1, "export PET_NNODES=2\nsrun torchrun --nproc_per_node 8 a.py"),
		"gigabytes.sh":     "#!/bin/bash\n#SBATCH --mem=80G\n#SBATCH --output=%x-%j.log\nsrun ./a",
		"numbers.yaml":     pod(1, "env: [{name: A, value: \"1\"}, {name: B, value: one}]"),
		"slots-given.yaml": mpiJob("", "command: [sh, -c, 'mpirun --host a:8,b:8 -np 16 all_reduce_perf -g 1']"),
	} {
		if found := Check([]File{{name, []byte(text)}}, nil); len(found) > 0 {
			t.Errorf("%s: %v", text, found)
		}
	}
}

// TestWrong: what is wrong with these is found, and nothing else.
func TestWrong(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a.sh", batch(2, 8, "srun ./all_reduce_perf -g 8"), "a.sh:5: processes a node: 8, GPUs of each: 8; that needs 64 GPUs, but there are 8"},
		{"a.sh", "#!/bin/sh\n#SBATCH -N2 --ntasks-per-node=8\nsrun ./all_reduce_perf -g 8", "no machine has so many"},
		{"a.sh", batch(2, 8, "srun torchrun --nproc_per_node 8 --nnodes 2 --rdzv_backend c10d a.py"), "that needs 64 GPUs"},
		{"a.sh", batch(2, 1, "srun torchrun --nproc_per_node 8 --nnodes 4 a.py"), "torchrun is told of 4 nodes, but starts on 2"},
		{"a.sh", batch(2, 1, "srun torchrun --nproc_per_node 8 --nnodes 2 --node_rank $SLURM_NODEID a.py"), "on each of 2 nodes torchrun gets the number 0"},
		{"a.sh", batch(2, 1, "torchrun --nproc_per_node 8 --nnodes 2 a.py"), "warning: torchrun is to wait for 2 nodes"},
		{"a.sh", batch(2, 1, "srun accelerate launch --num_processes 8 --num_machines 2 a.py"), "warning: processes a node: 1, GPUs of each: 4; 4 of 8 GPUs are idle"},
		{"a.sh", batch(2, 1, "srun deepspeed --num_gpus 16 a.py"), "that needs 16 GPUs, but there are 8"},
		{"a.sh", batch(2, 1, "srun torchrun --nproc_per_node 8 a.py"), "warning: on each of 2 nodes torchrun is told of no other"},
		{"a.slurm", "\n#!/bin/bash\n#SBATCH --nodes=1\nsrun ./a", "a.slurm:1: sbatch refuses a script whose first line does not begin with #!"},
		{"a.slurm", "#!/bin/bash\n#SBATCH --nodes=$N\nsrun ./a", "a.slurm:2: warning: nodes: sbatch expands no variable in a directive"},
		{"a.slurm", "#!/bin/bash\n#SBATCH --output=$HOME/a.log\nsrun ./a", "a.slurm:2: warning: output: sbatch expands no variable in a directive"},
		{"a.slurm", "#!/bin/bash\n#SBATCH --mem=80\nsrun ./a", "a.slurm:2: warning: mem: 80 without a unit are megabytes"},
		{"a.yaml", pod(1, "env: [{name: WORLD, value: 2}]"), "env: 2 is no string, and the API refuses it"},
		{"a.yaml", pod(1, "env: [{name: DEBUG, value: true}]"), "env: true is no string, and the API refuses it"},
		{"a.sh", batch(2, 8, "srun mpirun -np 16 ./a"), "each of 16 processes of srun starts mpirun"},
		{"a.sh", batch(2, 8, "export NCCL_DEBUG=INFO\nexport NCCL_SOCKET_IFNAME=ens1\nmpirun -np 16 ./all_reduce_perf -g 1"), "a.sh:5: warning: NCCL_DEBUG: NCCL_DEBUG, NCCL_SOCKET_IFNAME: mpirun passes no variable"},
		{"a.sh", "export NCCL_DEBUG=INFO\nmpirun -np 16 -hostfile hosts ./all_reduce_perf -g 1", "mpirun passes no variable"},
		{"a.sh", batch(2, 8, "export NCCL_DEBUG=INFO\nsrun --export=PATH,HOME ./a"), "srun --export=PATH,HOME keeps it from the tasks"},
		{"a.sh", batch(2, 8, "export LD_LIBRARY_PATH=/a NCCL_DEBUG=INFO\nsrun --container-image=a.sqsh --container-env=NCCL_DEBUG,A ./a"), "warning: LD_LIBRARY_PATH: LD_LIBRARY_PATH: where the image sets it, too"},
		{"a.sh", batch(2, 8, "export RANK=$SLURM_PROCID\nsrun python a.py"), "it is 0 for each of 16 tasks"},
		{"a.sh", batch(2, 8, "export NCCL_IB_DISABLE=1\nsrun ./a"), "warning: NCCL_IB_DISABLE: between 2 nodes NCCL uses sockets"},
		{"a.sh", batch(2, 8, "mpirun -x NCCL_IB_DISABLE=1 ./a"), "warning: NCCL_IB_DISABLE: between 2 nodes NCCL uses sockets"},
		{"a.sh", batch(2, 8, "export NCCL_SOCKET_IFNAME=lo\nsrun ./a"), "a.sh:5: NCCL_SOCKET_IFNAME: no node reaches another over lo"},
		{"a.sh", batch(1, 8, "export NCCL_P2P_DISABLE=1\nsrun ./a"), "not NVLink"},
		{"a.sh", batch(2, 8, "mpirun -np 32 ./a"), "warning: mpirun starts 32 processes, but 8 on each of 2 nodes are 16"},
		{"a.sh", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --container-image=a.sqsh\nsrun python a.py", "a.sh:3: warning: container-image: the script itself runs in the image"},
		{"a.sh", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --container-image=a.sqsh\npython a.py", "on the first of 2 nodes alone"},
		{"a.sh", "#!/bin/bash\n#SBATCH --container-image=nvcr.io#nvidia/pytorch:26.01\npython a.py", `sbatch reads "nvcr.io": the rest is a comment`},
		{"a.sh", "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH hetjob\n#SBATCH --nodes=1\nsrun ./all_reduce_perf -g 64", "skipped: the components of a heterogeneous job"},
		{"a.sh", "docker run --device /dev/infiniband example/a:1", "may not pin memory"},
		{"a.yaml", mpiJob(", command: [sleep, infinity]", "command: [mpirun]"), "a.yaml:8:217: spec.mpiReplicaSpecs[Worker].template.spec.containers[0].command: it starts no sshd"},
		{"a.yaml", mpiJob(", command: [/start.sh]", "command: [mpirun]"), "warning: spec.mpiReplicaSpecs[Worker].template.spec.containers[0].command: it starts no sshd"},
		{"a.yaml", mpiJob(", env: [{name: NCCL_DEBUG, value: INFO}]", "command: [mpirun]"), "warning: spec.mpiReplicaSpecs.Launcher.template.spec.containers[0].env[NCCL_DEBUG]: NCCL_DEBUG: mpirun passes no variable"},
		{"a.yaml", mpiJob("", "command: [bash, -c, 'mpirun -np 16 all_reduce_perf -g 8']"), "that needs 64 GPUs, but there are 8"},
		{"a.yaml", mpiJob("", "command: [mpirun], env: [{name: NCCL_IB_DISABLE, value: '1'}], args: [-x, NCCL_IB_DISABLE]"), "between 2 nodes NCCL uses sockets"},
		{"a.yaml", jobSet("command: [torchrun, --nnodes=4, --nproc_per_node=8, a.py]"), "torchrun is told of 4 nodes, but starts on 2"},
		{"a.yaml", jobSet("command: [sh, -c, 'torchrun --nproc_per_node=$G a.py'], env: [{name: G, value: '16'}]"), "that needs 16 GPUs, but there are 8"},
		{"a.yaml", pod(2), "warning: spec.containers[0].volumeMounts: nothing is mounted at /dev/shm for 2 GPUs"},
		{"a.yaml", pod(1, "securityContext: {runAsUser: 1000, capabilities: {add: [IPC_LOCK]}}"), "IPC_LOCK has no effect for a user other than root"},
		{"a.yaml", strings.Replace(pod(1), "{nvidia.com/gpu: 1}", "{rdma/hca: 1}", 1), "it asks for rdma/hca, but has not the capability IPC_LOCK"},
		{"a.yaml", pod(1, "env: [{name: LD_LIBRARY_PATH, value: '/a:$LD_LIBRARY_PATH'}]"), "Kubernetes does not expand $LD_LIBRARY_PATH"},
		{"a.yaml", "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {pytorchReplicaSpecs: {Worker: {template: {spec: {containers: [{resources: {limits: {nvidia.com/gpu: 4}, requests: {nvidia.com/gpu: 8}}}]}}}}}", "the request 8 differs from the limit 4"},
		{"a.sh", batch(2, 8, "srun torchrun --nproc_per_node 1 --nnodes 2 --rdzv_backend c10d --rdzv_endpoint localhost:29500 a.py"), "a.sh:5: --rdzv-endpoint=localhost:29500: on each of 2 nodes that is the node itself"},
		{"a.sh", batch(2, 1, "srun bash -c 'torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES --standalone a.py'"), "--standalone: each of 2 nodes trains by itself"},
		{"a.sh", batch(2, 8, "export MASTER_ADDR=127.0.0.1\nsrun python a.py"), "a.sh:5: warning: MASTER_ADDR: on each of 2 nodes 127.0.0.1 is the node itself"},
		{"a.sh", batch(2, 8, "srun --gres=gpu:4 bash -c \"echo rank\npython a.py\""), "warning: 8 tasks a node run Python, but there are 4 GPUs"},
		{"a.sh", batch(2, 8, "export NCCL_IB_HCA= mlx5\nsrun ./a"), `warning: NCCL_IB_HCA: it is empty: a space follows =, and "mlx5" is another word`},
		{"a.sh", batch(2, 8, "export NCCL_IB_HCAS=mlx5\nsrun ./a"), "a.sh:5: warning: NCCL_IB_HCAS: no such variable"},
		{"a.sh", "#!/bin/bash\n#SBATCH --tasks-per-node=8 --gpus-per-node=8\nsrun torchrun --nproc_per_node=8 a.py", "that needs 64 GPUs"},
		{"a.sh", batch(2, 1, "ARGS=(--nproc_per_node=8 --nnodes=2 --rdzv_endpoint=$(hostname) --rdzv_id=1) # all\ntorchrun \"${ARGS[@]}\" a.py"), "warning: torchrun is to wait for 2 nodes"},
		{"a.slurm", "#!/bin/bash\n#SBATCH --ntask-per-node=8\nsrun ./a", "a.slurm:2: sbatch has no option --ntask-per-node; write --ntasks-per-node"},
		{"a.slurm", "#!/bin/bash\n#SBATCH -ntasks-per-node=8\nsrun ./a", "a.slurm:2: with one dash sbatch reads -n with the value tasks-per-node=8; write --ntasks-per-node=8"},
		{"a.slurm", "#!/bin/bash\n#SBATCH --time=5min # or more\nsrun ./a", "a.slurm:2: time: sbatch cannot read the time 5min"},
		{"a.slurm", "#!/bin/bash\nmodule load cuda\n#SBATCH -N1\n\n#SBATCH -n1\nsrun ./a", "a.slurm:3: warning: sbatch does not read directives after the first command, on line 2; there are 2, down to line 5"},
		{"a.yaml", strings.Replace(mpiJob("", "command: [mpirun, -npernode, '8', all_reduce_perf]"), "Worker: 8", "Worker: 4", 1), "mpirun starts 8 processes a node, but a node has 4 slots"},
		{"a.yaml", strings.Replace(pod(1), "gpu: 1}", "gpu: 500m}", 1), "resources.limits[nvidia.com/gpu]: 500m is no whole number"},
		{"a.yaml", strings.Replace(pod(1), "limits", "requests", 1), "the request 1 has no limit, so the pods are refused"},
		{"a.yaml", pod(2, "volumeMounts: [{name: shm, mountPath: /dev/shm}]") + "  volumes: [{name: shm, emptyDir: {}}]\n", "spec.volumes[0].emptyDir: it is mounted at /dev/shm, but lies on the node's disk"},
		{"a.yaml", pod(2, "volumeMounts: [{name: shm, mountPath: /dev/shm}]") + "  volumes: [{name: shm, emptyDir: {medium: memory}}]\n", `there is no medium "memory"`},
		{"a.yaml", pod(2, "volumeMounts: [{name: shm, mountPath: /dev/shm}]") + "  volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 20Mi}}]\n", "20Mi at /dev/shm is less than the 64 MB"},
		{"a.yaml", pod(2, "volumeMounts: [{name: shm, mountPath: /dev/shm}]") + "  volumes: [{name: shm, emptyDir: {medium: Memory, sizeLimit: 32gb}}]\n", `sizeLimit: "32gb" is no quantity`},
		{"a.yaml", "apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: a}\nspec: {leaderWorkerTemplate: {size: 2, workerTemplate: {spec: {hostNetwork: true, containers: [{name: c}]}}}}", "the pod finds none of the other 1 by their names"},
		{"a.yaml", "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {pytorchReplicaSpecs: {Master: {template: {spec: {containers: [{name: c}]}}}, Worker: {replicas: 3, template: {spec: {containers: [{name: c, command: [torchrun, --nnodes=3, a.py]}]}}}}}", "torchrun is told of 3 nodes, but starts on 4"},
		{"a.yaml", strings.Replace(mpiJob("", "command: [mpirun, -np, '32', all_reduce_perf]"), "v2beta1", "v1", 1), "mpirun starts 32 processes, but 8 on each of 2 nodes are 16"},
		{"a.sh", batch(2, 1, "srun tune run --nnodes 4 --nproc_per_node 8 --rdzv_endpoint $HEAD:29500 full"), "torchrun is told of 4 nodes, but starts on 2"},
		{"a.sh", batch(2, 1, "srun --nodes=2 --ntasks=2 bash -c 'python -m sglang.launch_server --tp 16 --nnodes 2 --node-rank 0'"), "on each of 2 nodes sglang.launch_server gets the number 0"},
		{"a.sh", batch(2, 1, "srun python -m sglang.launch_server --tp 32 --nnodes 2 --node-rank $SLURM_NODE"), "that needs 16 GPUs, but there are 8"},
		{"a.sh", batch(2, 8, "srun bash -c \"RANK=$SLURM_PROCID LOCAL_RANK=\\$SLURM_LOCALID python a.py\""), "a.sh:5: warning: RANK: it is 0 in each of 16 tasks: the batch script's shell expands it"},
		{"a.sh", batch(2, 8, "srun bash -c 'RANK=$SLURM_LOCALID python a.py'"), "a.sh:5: RANK: SLURM_LOCALID counts the tasks of one node"},
		{"a.sh", batch(2, 8, "export WORLD_SIZE=$SLURM_NNODES\nsrun bash -c 'RANK=$SLURM_PROCID python a.py'"), "a.sh:6: WORLD_SIZE: it is 2, but srun starts 16 tasks"},
		{"a.sh", batch(1, 1, "export CUDA_VISIBLE_DEVICES=0,1\nsrun ./all_reduce_perf -g 4"), "a process uses 4 GPUs, but CUDA_VISIBLE_DEVICES names 2"},
		{"a.sh", batch(2, 8, "export MASTER_PORT=600\nsrun python a.py"), "a.sh:5: MASTER_PORT: there is no port 600"},
		{"a.sh", batch(2, 1, "srun torchrun --nproc_per_node 8 --nnodes 2 --rdzv_endpoint $HEAD:66000 a.py"), "--rdzv-endpoint: there is no port 66000"},
		{"a.sh", batch(2, 8, "export NCCL_SOCKET_IFNAME=^docker0\nsrun ./a"), "a.sh:5: warning: NCCL_SOCKET_IFNAME: an exclusion replaces NCCL's own"},
		{"a.sh", batch(2, 8, "export NCCL_SOCKET_IFNAME=docker0\nsrun ./a"), "no node reaches another over docker0"},
		{"a.sh", batch(4, 1, "H=$(hostname)\nL=\"accelerate launch --num_processes 4 --num_machines $SLURM_NNODES --main_process_ip $H\"\nsrun $L a.py"), "7 of 8 GPUs are idle"},
		{"a.sh", batch(2, 8, "srun ./a \\ \n  -b 8"), "a.sh:5: warning: a blank follows the last \\"},
		{"a.sh", batch(1, 1, "export A=\"b\nsrun ./a"), "nothing closes the quote that opens here or above"},
		{"a.sh", "#!/bin/bash\r\n#SBATCH -N1\r\nsrun ./a\r\n", "a.sh:1: sbatch refuses a script with DOS line breaks"},
		{"a.sh", "#!/bin/bash\n#SBATCH --gres=gpus:4\nsrun ./a", "a.sh:2: gres: Slurm has no resource gpus"},
		{"a.yaml", pod(1, "volumeMounts: [{name: data, mountPath: /data}]"), `volumeMounts[0].name: the pod has no volume "data"`},
		{"a.yaml", strings.Replace(pod(1), "limits: {nvidia.com/gpu: 1}", "claims: [{name: gpus}]", 1), `the pod has no resource claim "gpus"`},
		{"a.yaml", strings.Replace(pod(1), "gpu: 1", "gpus: 1", 1), "no device plugin offers this name, so the pods wait for ever; write nvidia.com/gpu"},
		{"a.yaml", pod(1, "volumes: [{name: a, emptyDir: {}}]"), "warning: spec.containers[0].volumes: there is no such field"},
		{"a.yaml", pod(1, "workingDir: /a", "workingDir: /b"), "a.yaml:9:5: warning: workingDir: it is there twice"},
		{"a.yaml", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: a}\nspec: {template: {spec: {restartPolicy: Always, containers: [{name: c}]}}}", "the pods of a Job may not have Always"},
		{"a.yaml", "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: a}\nspec: {selector: {matchLabels: {app: a}}, template: {metadata: {labels: {app: b}}, spec: {containers: [{name: c}]}}}", "the selector asks for app=a, which the pods do not have"},
		{"a.yaml", "apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: a}\nspec: {pytorchReplicaSpecs: {Workers: {template: {spec: {containers: [{name: pytorch}]}}}}}", "the operator knows no replicas of this name; write Master or Worker"},
		{"a.yaml", strings.Replace(pod(1), "metadata: {", "metadata: {labels: {kueue.x-k8s.io/queue-name: user-queue}, ", 1) + "---\napiVersion: resource.nvidia.com/v1beta1\nkind: LocalQueue\nmetadata: {name: user-queues}\n", `no LocalQueue of this file is called "user-queue"; write user-queues`},
		{"a.yaml", strings.Replace(pod(1), "metadata: {", "metadata: {labels: {app: b}, ", 1) + "---\napiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {selector: {app: a}}\n", "no pod of this file has these labels"},
		{"a.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}", "skipped: kind: v1 ConfigMap is not checked"},
		{"a.yaml", "a: 1\n{{- if .Values.a }}\nb: 2\n{{- end }}", "skipped: the document that begins here is a template"},
		{"a.yaml", "---\na: [1", "a.yaml:2: skipped: the document that begins here is not YAML"},
		{"a.yaml", "image: a", "skipped: this is no object of Kubernetes"},
		{"a.txt", "a file of words\n", "skipped: "},
		{"hosts", "n1 slots=eight", "hosts:1: slots=eight"},
		{"hosts", "# none", "it names no host"},
		{"a.sh", " \n", "there is nothing in it"},
	} {
		found := Check([]File{{tt.name, []byte(tt.text)}}, func(name, _ string) *Finding {
			if name == "NCCL_IB_HCAS" {
				return &Finding{Level: LevelWarning, Message: "no such variable"}
			}
			return nil
		})
		hit := 0
		for _, f := range found {
			if strings.Contains(f.String(), tt.want) {
				hit++
			}
		}
		other := len(found) - hit
		for _, f := range found {
			if f.Level == LevelSkipped && f.Field == "kind" && !strings.Contains(f.String(), tt.want) {
				other-- // of an object beside it
			}
		}
		if strings.Contains(tt.text, "PyTorchJob") || strings.Contains(tt.text, "v1\nkind: MPIJob") || strings.Contains(tt.text, "LeaderWorkerSet") {
			other = 0 // of which is also said that it is not known
		}
		if hit != 1 || other != 0 {
			t.Errorf("%s:\n%v\nwant %q once", tt.text, found, tt.want)
		}
	}
}

// FuzzCheck: no file makes a check panic or point outside of it.
func FuzzCheck(f *testing.F) {
	for _, s := range Schedulers {
		for _, name := range []string{"a.yaml", "a.slurm", "a"} {
			f.Add(name, []byte(good(f, s, RunCertify)))
		}
	}
	for _, text := range []string{"---\n---\n", "a: &a [*a]", "apiVersion: v1\nkind: Pod\nspec: 3", "&a {<<: *a}", "apiVersion: v1\nkind: Pod\nmetadata: {name: y}\nspec: {containers: [{name: yes}]}", "\xff", "? [a]\n: b"} {
		f.Add("a.yaml", []byte(text))
	}
	for _, text := range []string{"srun -c '", "A=$A; B=\"$A$A\"", "cat <<EOF", "a=(", "${", "$(", "`", "<<", "for", "export", "srun bash -c \"a\n\""} {
		f.Add("a.sh", []byte(text))
	}
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		lines := bytes.Count(text, []byte("\n")) + 1
		for _, x := range Check([]File{{name, text}}, nil) {
			if x.Line < 0 || x.Line > lines || x.Message == "" || x.Level == "" {
				t.Errorf("%+v in a file of %d lines", x, lines)
			}
			if _, err := json.Marshal(x); err != nil {
				t.Error(err)
			}
		}
	})
}

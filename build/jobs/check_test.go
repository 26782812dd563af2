package jobs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/golden"
)

// TestCheckGolden: testdata/check has files with mistakes, each with what is
// found in it beside it.
func TestCheckGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/check/*")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		if strings.HasSuffix(file, ".found") {
			continue
		}
		n++
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, f := range Check([]File{{filepath.Base(file), text}}) {
			b.WriteString(f.String() + "\n")
		}
		golden.Check(t, strings.TrimPrefix(file, "testdata/")+".found", b.String())
	}
	if n < 10 {
		t.Errorf("%d files were checked", n)
	}
}

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
		{RunColl, MPIOperator, "  slotsPerWorker: 8", "  slotsPerWorker: 4", "slotsPerWorker is 4"},
		{RunColl, MPIOperator, "  slotsPerWorker: 8", "  slotsPerWorker: eight", "of type int32"},
		{RunColl, MPIOperator, "  slotsPerWorker: 8", "  slotPerWorker: 8", `unknown field "spec.slotPerWorker"`},
		{RunColl, MPIOperator, `- "64"`, `- "60"`, "mpirun starts 60 ranks"},
		{RunColl, MPIOperator, `- "64"`, `- 64`, "of type string"},
		{RunCertify, MPIOperator, "      replicas: 1\n", "      replicas: 2\n", "must be 1"},
		{RunCertify, MPIOperator, "mpiImplementation: OpenMPI", "mpiImplementation: LAM", "LAM"},
		{RunCertify, MPIOperator, "cleanPodPolicy: Running", "cleanPodPolicy: Sometimes", "Sometimes"},
		{RunCertify, MPIOperator, "                nvidia.com/gpu: \"8\"\n                rdma/ib: \"1\"\n              requests:", "                nvidia.com/gpu: \"8\"\n              requests:", "it has no limit"},
		{RunCertify, MPIOperator, "                - IPC_LOCK", "                - NET_ADMIN", "IPC_LOCK"},
		{RunCertify, MPIOperator, "mountPath: /dev/shm", "mountPath: /shm", "/dev/shm"},
		{RunCertify, MPIOperator, "kind: MPIJob", "kind: MPIjob", "did you mean MPIJob"},
		{RunCertify, MPIOperator, "kubeflow.org/v2beta1", "kubeflow.org/v1", "write kubeflow.org/v2beta1"},
		{RunCertify, MPIOperator, "memory: 960Gi", "memory: 960GiB", "quantities must match"},
		{RunCertify, MPIOperator, "          labels:\n            app.kubernetes.io/instance", "          lables:\n            app.kubernetes.io/instance", `.template.metadata.lables"`},
		{RunCertify, MPIOperator, "  runPolicy:\n", "  runPolicy:\n    backoffLimit: 0\n", "already"},
		{RunCertify, Kubernetes, "  parallelism: 8", "  parallelism: 99999999999", "of type int32"},
		{RunCertify, Kubernetes, "      restartPolicy: Never", "      restartPolicy: Always", "a Job's pods cannot have"},
		{RunCertify, Kubernetes, "mountPath: /dev/shm\n          name: shm", "mountPath: /dev/shm\n          name: shm2", `no volume "shm2"`},
		{RunCertify, JobSet, "value: \"8\"", "value: \"64\"", "it is 64, but 8 pods of 1 processes are 8"},
		{RunColl, JobSet, "value: \"64\"", "value: \"8\"", "it is 8, but 8 pods of 8 processes are 64"},
		{RunColl, JobSet, "completions: 8", "completions: 4", "it is 64, but 4 pods of 8 processes are 32"},
		{RunColl, JobSet, "    replicas: 1\n", "    replicas: 2000000000\n", "it is 64, but 16000000000 pods of 8 processes are 128000000000"},
		{RunColl, JobSet, "-node-0-0.", "-node-0-8.", "no pod of the set is called assay-h100-8x-coll-8x8-node-0-8."},
		{RunColl, JobSet, "-node-0-0.", "-node-00-0.", "no pod of the set is called assay-h100-8x-coll-8x8-node-00-0."},
		{RunColl, JobSet, "  - name: node\n", "  - name: nodes\n", "no pod of the set is called assay-h100-8x-coll-8x8-node-0-0.assay-h100-8x-coll-8x8"},
		{RunColl, JobSet, "enableDNSHostnames: true", "enableDNSHostnames: false", "the set has no names for its pods"},
		{RunColl, JobSet, "enableDNSHostnames: true", "subdomain: other", "no pod of the set is called"},
		{RunColl, JobSet, "  network:", "  networks:", `unknown field "spec.networks"`},
		{RunColl, JobSet, "restartPolicy: Never", "restartPolicy: Always", "a Job's pods cannot have"},
		{RunColl, JobSet, "activeDeadlineSeconds", "#", "there is no activeDeadlineSeconds"},
		{RunColl, JobSet, "mountPath: /dev/shm", "mountPath: /shm", "/dev/shm"},
		{RunColl, JobSet, "jobset.x-k8s.io/v1alpha2", "jobset.x-k8s.io/v1", "write jobset.x-k8s.io/v1alpha2"},
		{RunColl, SlurmBare, "#SBATCH --gpus-per-node=8", "#SBATCH --gpus-per-node=4", "8 tasks, but 4 GPUs"},
		{RunCertify, SlurmBare, "#SBATCH --exclusive", "#SBATCH exclusive", "is no directive"},
		{RunCertify, SlurmBare, "#SBATCH --exclusive", "true\n#SBATCH --exclusive", "after the first command"},
		{RunCertify, SlurmBare, "#SBATCH --exclusive", "#SBATCH --nodes=3", "it is there already"},
		{RunCertify, SlurmBare, "#!/bin/bash\n", "", "which shell"},
		{RunColl, Hostfile, "n2 slots=8", "n1 slots=8", "there already, on line"},
		{RunColl, Hostfile, "n2 slots=8", "n2", "DeepSpeed"},
		{RunColl, Hostfile, "n2 slots=8", "n2 slots=0", "how many ranks"},
		{RunColl, Hostfile, "n2 slots=8", "n2 slots=4", "the first host 8"},
		// The two kinds of job: a process a GPU, and one a node.
		{RunCertify, SlurmBare, "--ntasks-per-node=1", "--ntasks-per-node=8", "8 tasks a node, but harness certify takes one"},
		{RunCertify, SlurmBare, "srun ", "srun --ntasks-per-node=8 ", "8 tasks a node, but harness certify takes one"},
		{RunCertify, SlurmBare, "harness certify --suite", "harness coll all_reduce", "1 tasks, but 8 GPUs"},
		{RunColl, SlurmBare, "--ntasks-per-node=8", "--ntasks-per-node=1", "1 tasks, but 8 GPUs"},
		{RunColl, SlurmBare, "harness coll all_reduce", "harness certify", "8 tasks a node, but harness certify takes one"},
		{RunColl, MPIOperator, "- slot\n", "- ppr:1:node\n", "one rank a node, but slotsPerWorker is 8"},
		{RunCertify, MPIOperator, "- -np\n            - \"8\"", "- -np\n            - \"64\"", "mpirun starts 64 processes on 8 workers"},
		{RunCertify, MPIOperator, "            - certify\n            - --suite\n            - fabric", "            - coll", "a worker has 8 GPUs, but slotsPerWorker is 1"},
		{RunColl, MPIOperator, "            - coll\n", "            - certify\n", "slotsPerWorker: it is 8, but harness certify takes one"},
		{RunCertify, Hostfile, "-np 2", "-np 16", "mpirun starts 16 processes on 2 hosts"},
		{RunColl, Hostfile, "harness coll all_reduce", "harness certify", "hosts have 8 slots, but harness certify takes one"},
		{RunColl, Hostfile, "-np 16", "-np 17", "starts 17 ranks, but 2 hosts of 8 slots are 16"},
		{RunColl, Hostfile, "--map-by slot", "--map-by ppr:1:node", "one rank a host, but hosts have 8 slots"},
		{RunCertify, Docker, "--ulimit memlock=-1 ", "", "may not pin memory"},
	} {
		text := good(t, tt.scheduler, tt.run)
		changed := strings.Replace(text, tt.old, tt.new, 1)
		if changed == text {
			t.Errorf("%s: %q is not in the job:\n%s", tt.scheduler, tt.old, text)
			continue
		}
		name := map[string]string{SlurmBare: "job.slurm", MPIOperator: "job.yaml", JobSet: "job.yaml", Kubernetes: "job.yaml", Docker: "job.sh"}[tt.scheduler]
		found := Check([]File{{name, []byte(changed)}})
		hit := false
		for _, f := range found {
			hit = hit || strings.Contains(f.String(), tt.want) && (f.Line > 0 || f.Level != LevelError)
		}
		if !hit {
			t.Errorf("%s, %q for %q: %v; want %q with a line", tt.scheduler, tt.new, tt.old, found, tt.want)
		}
	}
}

// TestNames: two objects of one kind and name in files that are checked together.
func TestNames(t *testing.T) {
	text := []byte(good(t, MPIOperator, RunCertify))
	other := bytes.ReplaceAll(text, []byte("assay-h100-8x-8x8"), []byte("another"))
	if found := Check([]File{{"a.yaml", text}, {"b.yaml", other}}); len(found) != 0 {
		t.Errorf("found %v", found)
	}
	found := Check([]File{{"a.yaml", text}, {"b.yaml", text}})
	if len(found) != 1 || found[0].File != "b.yaml" || !strings.Contains(found[0].Message, "a.yaml has a MPIJob of this name") {
		t.Errorf("found %v; want two jobs of one name", found)
	}
}

// FuzzCheck: no file makes a check panic or point outside of it, and what it
// finds nothing wrong with the API's decoder takes, too.
func FuzzCheck(f *testing.F) {
	for _, s := range Schedulers {
		for _, name := range []string{"a.yaml", "a.slurm", "a"} {
			f.Add(name, []byte(good(f, s, RunCertify)))
		}
	}
	for _, text := range []string{"---\n---\n", "a: &a [*a]", "apiVersion: v1\nkind: Pod\nspec: 3", "&a {<<: *a}", "apiVersion: v1\nkind: Pod\nmetadata: {name: y}\nspec: {containers: [{name: yes}]}", "\xff", "? [a]\n: b"} {
		f.Add("a.yaml", []byte(text))
	}
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		lines := bytes.Count(text, []byte("\n")) + 1
		for _, x := range Check([]File{{name, text}}) {
			if x.Line < 0 || x.Line > lines || x.Message == "" || x.Level == "" {
				t.Errorf("%+v in a file of %d lines", x, lines)
			}
			if _, err := json.Marshal(x); err != nil {
				t.Error(err)
			}
		}
	})
}

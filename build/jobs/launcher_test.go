package jobs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	mpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	"sigs.k8s.io/yaml"
)

// standIn stands in for the harness: each rank ends as the test says, after the
// others have begun.
const standIn = `#!/bin/bash
case "$*" in "exec -- $0 certify --suite "*) ;; *) exit 2 ;; esac
echo "report of $OMPI_COMM_WORLD_RANK $*"
touch "$DIR/began$OMPI_COMM_WORLD_RANK"
while [ ! -e "$DIR/began0" ] || [ ! -e "$DIR/began1" ] || [ ! -e "$DIR/began2" ]; do sleep 0.05; done
case $OMPI_COMM_WORLD_RANK:$DIE in
1:process | 0:first) kill -9 $$ ;;
1:host) kill -9 "$PPID" $(cut -d ' ' -f 4 "/proc/$PPID/stat") $$ ;;
esac
sleep 1
case $OMPI_COMM_WORLD_RANK:$DIE in 0:*) exit "$FIRST" ;; 2:*) exit "$LAST" ;; 1:first) sleep 12; exit 3 ;; esac
`

// TestLauncher runs the launcher's command of an MPIJob with a real mpirun, on
// three hosts that are this one, and ranks that end badly or die.
func TestLauncher(t *testing.T) {
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("no mpirun on this machine: apt-get install openmpi-bin")
	}
	if testing.Short() {
		t.Skip("-short: mpirun gives a dead host up after ten seconds")
	}
	for _, tt := range []struct {
		name, suite, die, first, last string
		want                          int
		says                          []string
	}{
		{"pass", "fabric", "", "0", "0", 0, []string{"report of 0"}},
		{"rank 0 speaks for all", "fabric", "", "1", "0", 1, []string{"report of 0"}},
		{"the others do not", "fabric", "", "0", "3", 0, []string{"report of 0"}},
		{"a process dies", "fabric", "process", "3", "0", 3, []string{"report of 0"}},
		{"the first process dies, and another takes over", "fabric", "first", "0", "0", 3, []string{"report of 1"}},
		{"a host dies", "fabric", "host", "3", "0", 3, []string{"report of 0"}},
		{"each for itself", "node", "", "0", "1", 1, []string{"report of 0", "report of 1", "report of 2", "--out /results/"}},
		{"each for itself, one killed", "node", "process", "0", "1", 137, []string{"report of 0", "report of 2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("/tmp", "mpi") // paths of sockets must be short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(dir) })
			argv := launcher(t, Options{Profile: "generic", Scheduler: MPIOperator, Nodes: 3, Image: image, Suite: tt.suite, Claim: "results", OutputDir: "/results"})
			for i, w := range argv {
				switch w {
				case inImage:
					argv[i] = filepath.Join(dir, "harness")
				case "/etc/mpi/hostfile":
					argv[i] = filepath.Join(dir, "hosts")
				}
			}
			for name, text := range map[string]string{
				"harness": standIn,
				"hosts":   "a slots=1\nb slots=1\nc slots=1\n",
				"agent":   "#!/bin/bash\nmkdir -p \"$DIR/$1\"\nexport TMPDIR=$DIR/$1 # else the hosts' daemons meet there\nshift\nexec bash -c \"$*\"\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
			cmd.Env = append(os.Environ(), "DIR="+dir, "TMPDIR="+dir, "DIE="+tt.die, "FIRST="+tt.first, "LAST="+tt.last,
				"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", // the test may be root, the pods are not
				"OMPI_MCA_plm_rsh_agent="+filepath.Join(dir, "agent"))
			var out, errOut bytes.Buffer
			cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errOut, time.Second
			err = cmd.Run()
			if ctx.Err() != nil || errors.Is(err, exec.ErrWaitDelay) || cmd.ProcessState.ExitCode() != tt.want {
				t.Errorf("%v; want status %d\n%s\n%s", err, tt.want, &out, &errOut)
			}
			for _, want := range tt.says {
				if !strings.Contains(out.String(), want) {
					t.Errorf("it says %q; want %q", &out, want)
				}
			}
			if strings.Contains(out.String(), told) {
				t.Errorf("what is for the launcher alone is in its log: %q", &out)
			}
		})
	}
}

// launcher is the command of a job's launcher as Kubernetes would start it.
func launcher(t *testing.T, o Options) []string {
	t.Helper()
	text, err := Render(o)
	if err != nil {
		t.Fatal(err)
	}
	var job mpi.MPIJob
	if err := yaml.Unmarshal(text, &job); err != nil {
		t.Fatal(err)
	}
	c := job.Spec.MPIReplicaSpecs[mpi.MPIReplicaTypeLauncher].Template.Spec.Containers[0]
	argv := append(c.Command, c.Args...)
	for i, w := range argv {
		argv[i] = strings.ReplaceAll(w, "$$(", "$(")
	}
	return argv
}

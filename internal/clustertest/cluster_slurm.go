package clustertest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Slurm starts a real Slurm on the cluster: the controller on the first host, and slurmd on each.
// topology is the text of topology.conf; "": Slurm has no topology. If that is not possible, the test
// is skipped with the reason. Commands of Slurm run on the first host, with the environment.
func (c *Cluster) Slurm(ctx context.Context, topology string) (environ []string) {
	c.t.Helper()
	for _, need := range []string{"slurmctld:slurm-wlm", "slurmd:slurm-wlm", "munged:munge"} {
		program, pkg, _ := strings.Cut(need, ":")
		if _, err := exec.LookPath(program); err != nil {
			c.t.Skipf("there is no %s: apt-get install %s", program, pkg)
		}
	}
	lines := []string{
		"ClusterName=hosts", "SlurmctldHost=" + c.Hosts[0].Name, "SlurmUser=root", "SlurmdUser=root", "AuthType=auth/munge", "AuthInfo=socket=/run/munge.socket",
		"CredType=cred/munge", "StateSaveLocation=/run/slurmctld", "SlurmdSpoolDir=/run/slurmd", "SlurmctldPidFile=/run/slurmctld.pid", "SlurmdPidFile=/run/slurmd.pid",
		"SlurmctldLogFile=/shared/slurm/slurmctld.log", "SlurmdLogFile=/shared/slurm/%n.log", "ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none",
		"SelectType=select/cons_tres", "SelectTypeParameters=CR_Core", "ReturnToService=2", "MpiDefault=none", "SlurmdParameters=config_overrides",
		"PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
	}
	for _, h := range c.Hosts {
		lines = append(lines, fmt.Sprintf("NodeName=%s NodeAddr=%s CPUs=4 State=UNKNOWN", h.Name, h.Addr))
	}
	if topology != "" {
		lines = append(lines, "TopologyPlugin=topology/tree")
		c.write(filepath.Join(c.Shared, "slurm", "topology.conf"), topology, 0o644)
	}
	c.write(filepath.Join(c.Shared, "slurm", "slurm.conf"), strings.Join(lines, "\n")+"\n", 0o644)
	c.write(filepath.Join(c.Shared, "slurm", "key"), strings.Repeat("the key of a test's cluster. ", 8), 0o400)
	// A host's /sys has no cgroups, which slurmd would look for.
	c.write(filepath.Join(c.Shared, "slurm", "cgroup.conf"), "CgroupPlugin=cgroup/v1\n", 0o644)
	environ = []string{"SLURM_CONF=/shared/slurm/slurm.conf"}
	logs := func() string {
		log, _ := exec.Command("sh", "-c", "tail -n 5 "+filepath.Join(c.Shared, "slurm")+"/*.log").CombinedOutput()
		return string(log)
	}
	start := `mkdir -p /run/munge /run/slurmd /run/slurmctld && chmod 0755 /run/munge && cp /shared/slurm/key /run/munge/key && chmod 0400 /run/munge/key &&
munged --force --key-file=/run/munge/key --socket=/run/munge.socket --pid-file=/run/munged.pid --log-file=/run/munge/log --seed-file=/run/munge/seed && `
	for i, h := range c.Hosts {
		daemons := "slurmd -N " + h.Name
		if i == 0 {
			daemons = "slurmctld && " + daemons
		}
		cmd := h.Command(ctx, "sh", "-c", start+daemons)
		cmd.Env = append(cmd.Env, environ...)
		if out, err := cmd.CombinedOutput(); err != nil {
			c.t.Fatalf("%s: %v: %s\n%s", h.Name, err, out, logs())
		}
	}
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		cmd := c.Hosts[0].Command(ctx, "sinfo", "-h", "-t", "idle", "-o", "%D")
		cmd.Env = append(cmd.Env, environ...)
		if out, _ := cmd.Output(); strings.TrimSpace(string(out)) == fmt.Sprint(len(c.Hosts)) {
			return environ
		}
		if time.Now().After(end) {
			c.t.Fatalf("not all hosts of Slurm's are idle after 5 minutes\n%s", logs())
		}
	}
}

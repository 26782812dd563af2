package slurm

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/assay-hpc/assay/internal/attest"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/result"
)

// drained is when nodes were drained, and began when checks began.
var drained, began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)

func statement(v result.Verdict) *certificate.Admitted {
	return statementOf(v, "gpu-3.cluster.example", began)
}

func statementOf(v result.Verdict, name string, began time.Time) *certificate.Admitted {
	p := certificate.Predicate{Suite: "node", Started: began, Finished: began.Add(time.Minute), Results: []result.Result{{ID: "x", Verdict: v, Reason: "why"}}}
	if v == result.Pass { // it answers a failure by x
		p.Results = append(p.Results, result.Result{ID: certificate.GPUsID, Verdict: v}, result.Result{ID: "y", Verdict: v})
		p.After = &certificate.After{Checks: []string{"x"}, Times: 3}
	}
	st := certificate.New(p)
	if err := st.SetNode(&certificate.Node{Name: name, Identity: []string{"GPU-1"}}); err != nil {
		panic(err)
	}
	return certificatetest.Admit(st)
}

// TestDecide: what is done about a node, by verdict and state.
func TestDecide(t *testing.T) {
	const (
		fail, broken = "assay: x: why", "assay: not run: x: why"
		drain, back  = "drain", "undrain"
	)
	for _, tt := range []struct {
		verdict       result.Verdict
		state, reason string
		o             Options
		want, says    string
	}{
		{result.Pass, "IDLE", "", Options{Resume: true}, "", "in service"},
		{result.Pass, "IDLE DRAIN", fail, Options{Resume: true}, back, "taken back"},
		{result.Pass, "IDLE DRAIN", fail, Options{}, "", "--slurm-resume"},
		{result.Pass, "DOWN DRAIN", fail, Options{Resume: true}, back, "taken back"}, // DOWN stays
		{result.Pass, "IDLE DRAIN", broken, Options{Resume: true}, back, "taken back"},
		{result.Pass, "IDLE DRAIN", "assay: gpus: 7 GPUs, not 8", Options{Resume: true}, back, "taken back"},
		{result.Pass, "IDLE DRAIN", "assay: every check was skipped: nothing was shown", Options{Resume: true}, back, "taken back"},
		{result.Pass, "IDLE DRAIN", "assay: y: was measured, but not harder", Options{Resume: true}, "", "it failed by y, which this certificate did not measure harder than usual"},
		{result.Pass, "IDLE DRAIN", fail + " (+2 more: y, z)", Options{Resume: true}, "", "it failed by y, z, which"},
		{result.Pass, "IDLE DRAIN", fail + " (+1 more)", Options{Resume: true}, back, "taken back"},
		{result.Pass, "IDLE DRAIN", "fan", Options{Resume: true}, "", "not ours"},
		{result.Pass, "IDLE DRAIN", "assay:x", Options{Resume: true}, "", "not ours"},
		{result.Pass, "IDLE DRAIN", "", Options{Resume: true}, "", "not ours"},
		{result.Pass, "DOWN", fail, Options{Resume: true}, "", "in service"},
		{result.Fail, "IDLE", "", Options{}, drain, fail},
		{result.Fail, "ALLOCATED", "", Options{Resume: true}, drain, fail},
		{result.Fail, "IDLE DRAIN", fail, Options{}, "", "already"},
		{result.Fail, "IDLE DRAIN", "assay: y: other", Options{}, drain, fail + " (+1 more: y)"},
		{result.Fail, "IDLE DRAIN", fail + " (+1 more: y)", Options{}, "", "already"},
		{result.Fail, "IDLE", "assay: y: of a drain that is over", Options{}, drain, `"` + fail + `"`},
		{result.Fail, "IDLE DRAIN", "fan", Options{}, "", `"fan"`},
		{result.Fail, "IDLE DRAIN", "", Options{}, "", "out of service already"}, // State=DRAIN in slurm.conf
		{result.Fail, "DOWN", "", Options{}, drain, fail},
		{result.Fail, "IDLE MAINTENANCE RESERVED", "", Options{}, drain, fail},
		{result.Pass, "MIXED DRAIN MAINTENANCE RESERVED", "fan", Options{Resume: true}, "", "not ours"},
		{result.Fail, "FAIL", "RMA 4711", Options{}, "", `"RMA 4711"`},
		{result.Fail, "DOWN", "board swap", Options{}, "", `"board swap"`},
		{result.Fail, "DOWN", "Not responding", Options{}, drain, fail},
		{result.Fail, "DOWN", "Node unexpectedly rebooted", Options{}, drain, fail},
		{result.Fail, "DOWN DRAIN", "Not responding", Options{}, "", "Not responding"},
		{result.Fail, "IDLE", "an old reason", Options{}, drain, fail},
		{result.Error, "IDLE", "", Options{}, "", "left as it is: not run: x: why"},
		{result.Error, "IDLE", "", Options{OnError: true}, drain, broken},
		{result.Error, "IDLE DRAIN", fail, Options{Resume: true}, "", "left as it is"},
		{result.Error, "IDLE DRAIN", "fan", Options{OnError: true}, "", `"fan"`},
		{result.Skip, "IDLE DRAIN", fail, Options{Resume: true}, "", "every check was skipped"},
		{result.Skip, "IDLE", "", Options{OnError: true}, drain, "every check was skipped"},
	} {
		n := Node{Name: "n1", State: strings.Fields(tt.state), Reason: tt.reason, Since: drained}
		got, err := Decide(statement(tt.verdict), n, tt.o)
		if err != nil || got.State != tt.want || !strings.Contains(got.Note, tt.says) || (got.State == drain) != (got.Reason != "") {
			t.Errorf("Decide(%s, %+v, %+v) = %+v, %v; want %q, %q", tt.verdict, n, tt.o, got, err, tt.want, tt.says)
		}
	}
}

// TestSelected: a reason that does not name all checks is answered by a certificate that left none out.
func TestSelected(t *testing.T) {
	n := Node{Name: "n1", State: []string{"IDLE", "DRAIN"}, Reason: "assay: x: why (+1 more)", Since: drained}
	adm := statement(result.Pass)
	adm.Statement().Predicate.Selected = &certificate.Selected{Only: []string{"x"}}
	if c, err := Decide(adm, n, Options{Resume: true}); err != nil || c.State != "" || !strings.Contains(c.Note, "this certificate left some out (--only x)") {
		t.Errorf("%+v, %v", c, err)
	}
}

// TestOlder: a pass whose checks began before the drain does not undo it, nor does any where it is
// not known when that was. A fail drains, however old it is.
func TestOlder(t *testing.T) {
	n := Node{Name: "n1", State: []string{"IDLE", "DRAIN"}, Reason: "assay: x: why", Since: drained}
	for _, tt := range []struct {
		after time.Duration // of the start, after the drain
		since time.Time
		ok    bool
	}{
		{time.Hour, drained, true}, {time.Second, drained, true}, {time.Second - 1, drained, false}, {0, drained, false}, {-time.Second, drained, false}, {-30 * time.Second, drained, false},
		{-24 * time.Hour, drained, false}, {time.Hour, time.Time{}, false}, {time.Hour, drained.Add(24 * time.Hour), false},
	} {
		n.Since = tt.since
		c, err := Decide(statementOf(result.Pass, "gpu-3", drained.Add(tt.after)), n, Options{Resume: true})
		if (err == nil) != tt.ok || err != nil && !errors.Is(err, attest.ErrTime) || c.State != "undrain" {
			t.Errorf("begun %v after the drain at %v: %+v, %v; want ok = %v", tt.after, tt.since, c, err, tt.ok)
		}
		n.Reason = "assay: y: another"
		if c, err := Decide(statementOf(result.Fail, "gpu-3", drained.Add(tt.after)), n, Options{}); err != nil || c.State != "drain" {
			t.Errorf("a fail: %+v, %v", c, err)
		}
		n.Reason = "assay: x: why"
	}
}

func TestParseNode(t *testing.T) {
	for _, tt := range []struct {
		name, out, reason, since string
		state                    []string
	}{
		{"drained", "NodeName=gpu-1 Arch=x86_64 CoresPerSocket=1 \n   NodeAddr=10.0.0.1 NodeHostName=gpu-1 Port=6818\n   OS=Linux 6.8 #1 SMP\n" +
			"   State=IDLE*+DRAIN+NOT_RESPONDING ThreadsPerCore=1\n   Reason=assay: State=DOWN [x@y] z [root@2026-11-22T17:57:43]\n   Comment=State=FAIL\n",
			"assay: State=DOWN [x@y] z", "2026-11-22 17:57:43", []string{"IDLE", "DRAIN", "NOT_RESPONDING"}},
		{"no reason", "NodeName=gpu-1 CoresPerSocket=1\n   State=MIXED- Weight=1\n   NextState=DOWN\n", "", "0001-01-01 00:00:00", []string{"MIXED"}},
		{"Slurm 25.11", "NodeName=gpu-1 Arch=x86_64 CoresPerSocket=24\n   CPUAlloc=0 CPUEfctv=94 CPUTot=96 CPULoad=0.01\n   NodeAddr=gpu-1 NodeHostName=gpu-1 Version=25.11.3\n" +
			"   State=IDLE+CLOUD+DRAIN+POWERED_DOWN+INVALID_REG ThreadsPerCore=1 Owner=N/A\n   LastBusyTime=2026-04-29T12:48:47 ResumeAfterTime=None\n   Reason=two\n [root@2026-04-29T03:06:18]\n",
			"two", "0001-01-01 00:00:00", []string{"IDLE", "CLOUD", "DRAIN", "POWERED_DOWN", "INVALID_REG"}},
		{"a user of a domain", "NodeName=gpu-1\n   State=DOWN~+DRAIN$ \n   Reason=[x] y [a@b.example@2026-04-29T03:06:18]\n       a second line\n", "[x] y", "2026-04-29 03:06:18", []string{"DOWN", "DRAIN"}},
		{"marks", "NodeName=gpu-1\n   State=DOWN#+FAIL@^\n   Reason=x\n", "x", "0001-01-01 00:00:00", []string{"DOWN", "FAIL"}},
		{"nobody's reason", "NodeName=gpu-1\n   State=DOWN\n   Reason=Low Memory\n", "Low Memory", "0001-01-01 00:00:00", []string{"DOWN"}},
		{"no time", "NodeName=gpu-1\n   State=DOWN\n   Reason=x [slurm@Unknown]\n", "x", "0001-01-01 00:00:00", []string{"DOWN"}},
	} {
		n, err := parseNode(tt.out)
		if err != nil || n.Name != "gpu-1" || n.Reason != tt.reason || n.Since.Format(time.DateTime) != tt.since || !slices.Equal(n.State, tt.state) {
			t.Errorf("%s: parseNode = %+v, %v; want %q, %v", tt.name, n, err, tt.reason, tt.state)
		}
	}
	for _, out := range []string{"", "Node x not found", "NodeName=a\n   Reason=b State=IDLE\n"} {
		if n, err := parseNode(out); err == nil {
			t.Errorf("parseNode(%q) = %+v", out, n)
		}
	}
}

func FuzzParseNode(f *testing.F) {
	f.Add("NodeName=a b\n   State=IDLE+DRAIN x\n   Reason=assay: y [root@2026]\n")
	f.Fuzz(func(t *testing.T, out string) {
		n, err := parseNode(out)
		if err == nil && (n.Name == "" || len(n.State) == 0 || strings.Contains(n.Reason, "\n")) {
			t.Errorf("parseNode(%q) = %+v", out, n)
		}
	})
}

func TestDetect(t *testing.T) {
	for in, want := range map[string]Context{"": ByHand, "prolog_slurmd": Prolog, "epilog_slurmd": Epilog, "prolog_slurmctld": "", "prolog_task": "", "epilog_srun": ""} {
		got, err := Detect(func(name string) string { return map[string]string{"SLURM_SCRIPT_CONTEXT": in}[name] })
		if got != want || (err == nil) != (want != "") {
			t.Errorf("Detect(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}

func TestNodeName(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	of := statement(result.Pass).Statement()
	for _, tt := range []struct {
		given, variable string
		st              *certificate.Statement
		want            string
	}{
		{"a", "b", of, "a"}, {"", "b", of, "b"}, {"", "", of, "gpu-3"}, {"", "", certificate.New(certificate.Predicate{Suite: "node"}), host},
	} {
		t.Setenv("SLURMD_NODENAME", tt.variable)
		if got, err := nodeName(tt.given, tt.st); got != tt.want || err != nil {
			t.Errorf("nodeName(%q) with %q = %q, %v; want %q", tt.given, tt.variable, got, err, tt.want)
		}
	}
}

// TestAbout: only the node that is this machine is changed, unless somebody said which machine it is,
// and then the one that has the certificate's name, or a given one.
func TestAbout(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	const (
		elsewhere = "node n1 (host gpu-3) is not this machine"
		another   = "about gpu-4, not about node n1 (host gpu-3)"
	)
	for _, tt := range []struct {
		slurmd, hostName, machine string
		o                         Options
		want                      string
	}{
		{"n1", "gpu-3", "gpu-9", Options{}, ""},
		{"n1", "gpu-3", "gpu-9", Options{Node: "n1"}, ""},
		{"", host, "gpu-9", Options{Node: "n1"}, ""},
		{"", strings.ToUpper(host) + ".example", "gpu-9", Options{Node: "n1"}, ""},
		{"", "gpu-3", "n1", Options{}, elsewhere},
		{"", "gpu-3", "n1", Options{Node: "n1"}, elsewhere},
		{"n2", "gpu-3", "n1", Options{Node: "n1"}, elsewhere},
		{"n2", host, "n1", Options{Node: "n1"}, "is not this machine"},
		{"", "gpu-3", "n1", Options{Vouched: true}, ""},
		{"n1", "gpu-3", "gpu-3.example", Options{Vouched: true}, ""},
		{"n1", "gpu-3", "gpu-4", Options{Vouched: true}, another},
		{"n1", "gpu-3", "gpu-4", Options{Vouched: true, Node: "n1"}, ""},
	} {
		t.Setenv("SLURMD_NODENAME", tt.slurmd)
		show := fmt.Sprintf("printf 'NodeName=n1 A=b\\n NodeAddr=1 NodeHostName=%s Port=1\\n State=IDLE\\n'", tt.hostName)
		_, err := Act(t.Context(), program(t, show), statementOf(result.Pass, tt.machine, began), tt.o)
		if (err == nil) != (tt.want == "") || err != nil && (!strings.Contains(err.Error(), tt.want) || !errors.Is(err, attest.ErrSubject)) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// TestQuote: a shell reads the arguments as they are.
func TestQuote(t *testing.T) {
	args := []string{"update", "nodename=n[1-2]", "reason=assay: don't \"$(x)\" `y` \\ 41 °C; a=b\t*", "state=drain"}
	out, err := exec.Command("sh", "-c", "printf '%s\\n' "+quote(args)).Output()
	if err != nil || string(out) != strings.Join(args, "\n")+"\n" {
		t.Errorf("quote(%q) = %s, which a shell reads as %q, %v", args, quote(args), out, err)
	}
}

// TestQuiet: where nodes by the thousand do it at once, the controller is not
// asked unless there is something to do.
func TestQuiet(t *testing.T) {
	never := Scontrol(filepath.Join(t.TempDir(), "none"))
	for _, tt := range []struct {
		context Context
		verdict result.Verdict
		o       Options
		asked   bool
	}{
		{Prolog, result.Pass, Options{}, false}, {Prolog, result.Error, Options{}, false}, {Prolog, result.Error, Options{OnError: true}, true},
		{Prolog, result.Fail, Options{}, true}, {Epilog, result.Pass, Options{}, false}, {Epilog, result.Pass, Options{Resume: true}, true},
		{Health, result.Pass, Options{}, true}, {ByHand, result.Pass, Options{}, true},
	} {
		tt.o.Context = tt.context
		_, err := Act(t.Context(), never, statement(tt.verdict), tt.o)
		if (err != nil) != tt.asked {
			t.Errorf("%+v: Act on %s: %v; asked should be %v", tt.o, tt.verdict, err, tt.asked)
		}
	}
	if _, err := Act(t.Context(), never, statement(result.Pass), Options{Context: Prolog, Resume: true}); err == nil || !strings.Contains(err.Error(), "epilog") {
		t.Errorf("resume in a prolog: %v", err)
	}
}

// program writes a program that takes scontrol's place, for what a real one
// does not do on demand.
func program(t *testing.T, script string) Scontrol {
	t.Helper()
	file := filepath.Join(t.TempDir(), "scontrol")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return Scontrol(file)
}

// TestFaults: what scontrol says of a fault is passed on, with what to do.
func TestFaults(t *testing.T) {
	const show = "[ \"$1\" = update ] || { printf 'NodeName=n1\\n State=IDLE\\n'; exit 0; }\n"
	var denied *Denied
	for _, tt := range []struct {
		name, script, want string
		denied             bool
	}{
		{"no controller", "echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1", "Unable to contact slurm controller", false},
		{"silent", "exit 1", "exit status 1", false},
		{"another node", "printf 'NodeName=n2\\n State=IDLE\\n'", `it says "n2"`, false},
		{"refused otherwise", show + "echo 'slurm_update error: Invalid node state specified' >&2; exit 1", "to do it by hand: scontrol update nodename=n1 state=drain reason='assay: x: why'", false},
		{"newer words", show + "echo 'slurm_update error: Access/permission denied' >&2; exit 1", "one of them can run: scontrol update nodename=n1", true},
	} {
		_, err := Act(t.Context(), program(t, tt.script), statement(result.Fail), Options{Node: "n1", Vouched: true})
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.As(err, &denied) != tt.denied {
			t.Errorf("%s: %v; want %q", tt.name, err, tt.want)
		}
	}
}

// TestCheck: rights are looked at before anything else is done.
func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		user, accounting, uid string
		want                  bool
	}{
		{"slurm(64030)", "accounting_storage/none", "0", true},
		{"slurm(64030)", "accounting_storage/none", "64030", true},
		{"slurm(64030)", "accounting_storage/none", "4030", false},
		{"root(0)", "(null)", "65534", false},
		{"root(0)", "accounting_storage/slurmdbd", "65534", true},
	} {
		config, err := program(t, fmt.Sprintf("printf 'AccountingStorageType   = %s\\nSlurmUser               = %s\\n'", tt.accounting, tt.user)).config(t.Context())
		if got := mayTry(config, tt.uid); err != nil || got != tt.want {
			t.Errorf("mayTry(%v, %s) = %v, %v; want %v", config, tt.uid, got, err, tt.want)
		}
	}
	if err := program(t, "exit 1").Check(t.Context(), Options{Context: Prolog}); err != nil {
		t.Errorf("a prolog asked the controller: %v", err)
	}
	if err := program(t, "exit 1").Check(t.Context(), Options{Context: Health}); err == nil {
		t.Error("no controller, and nobody minds")
	}
}

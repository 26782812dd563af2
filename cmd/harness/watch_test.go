package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/coll/flight"
	"github.com/assay-hpc/assay/coll/watch"
	"github.com/assay-hpc/assay/internal/exit"
)

func TestWatch(t *testing.T) {
	l := flight.New("tp\x1b[2J", 1, 2, []int{8, 9, -1, 11})
	defer l.Close()
	l.Add(&flight.Entry{Seq: 1, Sign: 7 << 24, Count: 100, Peer: -1})
	l.Add(&flight.Entry{Seq: 1, P2P: 1, Count: 2, Peer: 3})
	l.Ended(1)
	l.Say("it stands still: rank 3 sleeps")
	pid := strconv.Itoa(os.Getpid())
	runWatch := func(args ...string) (string, string, int) {
		var out, errOut bytes.Buffer
		code := run(append([]string{"harness", "watch"}, args...), &out, &errOut)
		return out.String(), errOut.String(), code
	}

	out, errs, code := runWatch("--last", "2", pid)
	for _, want := range []string{
		`(?m)^PID +COMMAND +STATE +COMMUNICATOR +RANK +GPU +CALLS +ENDED +LAST OPERATION +CALLED$`,
		`(?m)^` + pid + ` +\S+ +running +tp\S+ +1 of 4 +2 +2 +1 +Sends or Recvs +\d\S* ago$`,
		`(?m)^ +AllReduce of float with sum, 100 elements, operation #1 +\d\S* ago$`,
		`(?m)^communicator "tp\S+, \S+ ago: it stands still: rank 3 sleeps$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}
	if code != exit.Pass || errs != "" || strings.Contains(out, "\x1b") {
		t.Errorf("status %d, %q, %q", code, errs, out)
	}

	dir := t.TempDir()
	out, errs, code = runWatch("--torch", dir, pid)
	if out != filepath.Join(dir, "nccl_trace_rank_1")+"\n" || errs != "" || code != exit.Pass {
		t.Errorf("status %d, %q, %q", code, out, errs)
	}
	if out, errs, code = runWatch(dir); !strings.Contains(out, "has not completed") && !strings.Contains(out, "have completed") || code == exit.NotDone {
		t.Errorf("status %d, %q, %q", code, out, errs)
	}

	var report struct {
		Schema    string
		Processes []watch.Process
	}
	out, _, code = runWatch("-o", "json")
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != exit.Pass || report.Schema != "assay.watch/1" || len(report.Processes) == 0 {
		t.Errorf("status %d, %v: %s", code, err, out)
	}
	found := false
	for _, p := range report.Processes {
		if p.PID == os.Getpid() {
			c := p.Communicators[0]
			found = p.State == flight.Running && len(p.Communicators) == 1 && c.Rank == 1 && c.Calls == 2 && c.Ended == 1 && len(c.Last) == 1 && c.Last[0].Text == "Sends or Recvs" && c.SaidAt != nil
		}
	}
	if !found {
		t.Error(out)
	}

	dumps := t.TempDir()
	for rank, state := range []string{"started", "completed"} {
		text := fmt.Sprintf(`{"version": "2.10", "pg_config": {}, "entries": [{"process_group": ["0", "default_pg"], "collective_seq_id": 1,
			"profiling_name": "nccl:all_reduce", "input_sizes": [[8]], "input_dtypes": ["Float"], "state": %q}]}`, state)
		if err := os.WriteFile(filepath.Join(dumps, fmt.Sprint("trace_", rank)), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, errs, code = runWatch(dumps)
	if code != exit.Fail || errs != "" || !strings.Contains(out, "process group 0 (default_pg): operation #1, all_reduce of Float [8], was called by all") {
		t.Errorf("status %d, %q, %q", code, errs, out)
	}
	out, _, code = runWatch("-o", "json", filepath.Join(dumps, "trace_1"))
	if code != exit.Pass || !strings.Contains(out, `"assay.watch.torch/1"`) || !strings.Contains(out, "up to #1") {
		t.Errorf("status %d, %q", code, out)
	}

	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{filepath.Join(dumps, "trace_1"), filepath.Join(dumps, "trace_2")}, exit.NotDone, "trace_2: "},
		{[]string{"x", pid}, exit.Usage, `"x" is not the number of a process`},
		{[]string{"x1"}, exit.NotDone, "x1: "},
		{[]string{"--job", "7", "x1"}, exit.Usage, "--job and dumps exclude each other"},
		{[]string{"--last", strconv.Itoa(flight.Entries + 1)}, exit.Usage, "--last is from 1 to " + strconv.Itoa(flight.Entries)},
		{[]string{"--format", "yaml"}, exit.Usage, "text or json"},
		{[]string{"--every", "0s"}, exit.Usage, "--every is a time"},
		{[]string{"--job", "7", pid}, exit.Usage, "exclude each other"},
		{[]string{strconv.Itoa(os.Getppid())}, exit.NotDone, "it has made no communicator"},
		{[]string{"999999999"}, exit.NotDone, "there is no process 999999999"},
		{[]string{"--job", "no such job"}, exit.NotDone, "no process of job no such job"},
	} {
		if _, errs, code := runWatch(c.args...); code != c.code || !strings.Contains(errs, c.want) {
			t.Errorf("%q: status %d, %s", c.args, code, errs)
		}
	}
}

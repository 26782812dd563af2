package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/assay-hpc/assay/harness/history"
	"github.com/assay-hpc/assay/internal/certificate"
	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/exit"
)

// daily returns a node's certificate of some day; from the tenth on GPU 1 copies
// more slowly.
func daily(t testing.TB, name string, gpus, day int) *certificate.Statement {
	t.Helper()
	st := certificatetest.Node(gpus)
	p := &st.Predicate
	p.Started, p.Finished = p.Started.AddDate(0, 0, day), p.Finished.AddDate(0, 0, day)
	node := *p.Node
	node.Name = name
	node.Identity = append([]string{"serial " + name}, node.Identity...)
	st.Subject = nil
	if err := st.SetNode(&node); err != nil {
		t.Fatal(err)
	}
	for i := range p.Results {
		for j := range p.Results[i].Objects {
			o := &p.Results[i].Objects[j]
			if p.Results[i].ID == "bandwidth/h2d" && o.Name == "GPU 1" && day >= 10 {
				m := *o.Measured
				m.Value, m.Ratio = m.Value*0.9, m.Ratio*0.9
				o.Measured = &m
			}
		}
	}
	return st
}

// write puts a certificate into a directory.
func write(t testing.TB, dir string, st *certificate.Statement) string {
	t.Helper()
	b, err := st.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, fmt.Sprintf("%s-%d.json", st.Predicate.Node.Name, st.Predicate.Finished.Unix()))
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// historyOf runs harness history and returns what it says in JSON.
func historyOf(t *testing.T, args ...string) *history.History {
	t.Helper()
	code, out, errOut := tell(append([]string{"history", "-o", "json"}, args...)...)
	var h history.History
	if err := json.Unmarshal([]byte(out), &h); code != exit.Pass || err != nil {
		t.Fatalf("history %v: %d, %v, %s", args, code, err, errOut)
	}
	return &h
}

func TestHistory(t *testing.T) {
	dir := t.TempDir()
	sub := filepath.Join(dir, "b")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	for day := range 14 {
		write(t, dir, daily(t, "n1", 2, day))
		write(t, sub, daily(t, "n2", 2, day%10))
	}
	save(t, dir, "other.json", []byte(`{"not": "a certificate"}`))
	save(t, dir, "notes.txt", []byte("no JSON"))
	broken := save(t, dir, "broken.json", []byte(`{"predicateType":"`+certificate.PredicateType+`"}`))

	h := historyOf(t, dir)
	if h.Version != 2 || h.Certificates != 24 || h.Refused != 1 || len(h.Machines) != 2 {
		t.Errorf("history = version %d, %d certificates, %d refused, %d machines; want 2, 24, 1, 2", h.Version, h.Certificates, h.Refused, len(h.Machines))
	}
	if d := h.Drifts(); len(d) != 1 || d[0].Object != "GPU 1" || d[0].Kind != history.Step || d[0].From.Day() != 10 {
		t.Errorf("drifts = %v; want one of GPU 1 on the 10th", d)
	}
	for _, tt := range []struct {
		args         string
		certificates int
	}{
		{dir + " --node n2", 10}, {dir + " --node n?", 24}, {sub, 10}, {sub + " " + dir, 24}, {dir + " --since 2026-03-10", 6},
		{dir + " --since 2026-03-14T00:00:00Z", 1}, {write(t, t.TempDir(), daily(t, "n3", 1, 0)), 1},
	} {
		if got := historyOf(t, strings.Fields(tt.args)...).Certificates; got != tt.certificates {
			t.Errorf("history %s counts %d certificates; want %d", tt.args, got, tt.certificates)
		}
	}
	if h := historyOf(t, dir, "--check", "bandwidth/p2p", "--check", "coll"); len(h.Machines[0].Series) != 3 || len(h.Drifts()) != 0 {
		t.Errorf("of two checks there are %d series and %d drifts; want 3 and 0", len(h.Machines[0].Series), len(h.Drifts()))
	}
	for _, tt := range []struct {
		args string
		code int
		said string
	}{
		{dir, 0, "drift   n1: bandwidth/h2d: GPU 1 (GPU-00000001-1111-2222-3333-444444444444) fell 10 % between 2026-03-10 12:01 and 2026-03-11 12:01"},
		{dir, 0, "refused: " + broken + ": certificate: "},
		{dir + " --fail-on-drift", 1, "--fail-on-drift: 1 drift for the worse"},
		{sub + " --fail-on-drift", 0, "0 drifts"},
		{dir + " --fail-on-drift --tolerance 12", 0, "0 drifts"},
		{dir + " --node none", 3, "is a readable certificate of interest"},
		{dir + " --since 0h", 3, "is a readable certificate of interest"},
		{"", 2, "history wants"},
		{dir + " --since soon", 2, "--since \"soon\""},
		{dir + " --tolerance 0", 2, "--tolerance"},
		{dir + " --node [", 2, "--node"},
		{dir + " -o yaml", 2, "text or json"},
		{dir + "/none", 2, "no such directory"},
		{"none", 2, "no such directory"},
		{"oci:" + dir, 2, "not an OCI layout"},
	} {
		code, out, errOut := tell(append([]string{"history"}, strings.Fields(tt.args)...)...)
		if code != tt.code || !strings.Contains(out+errOut, tt.said) {
			t.Errorf("history %s: %d, %s%s; want %d, …%s…", tt.args, code, out, errOut, tt.code, tt.said)
		}
	}
}

// TestHistorySigned: with a key only what it signed counts, and the rest is counted.
func TestHistorySigned(t *testing.T) {
	dir := t.TempDir()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for day := range 6 {
		st := daily(t, "n1", 1, day)
		signer := key
		switch {
		case day == 5:
			write(t, dir, st) // bare
			continue
		case day >= 3:
			signer = other
		}
		b, err := certificatetest.Sign(st, signer)
		if err != nil {
			t.Fatal(err)
		}
		save(t, dir, fmt.Sprintf("%d.json", day), b)
	}
	if h := historyOf(t, dir); h.Certificates != 6 || h.Refused != 0 {
		t.Errorf("without a key: %d certificates, %d refused; want 6 and 0", h.Certificates, h.Refused)
	}
	keyFile := save(t, t.TempDir(), "ours.pub", publicPEM(t, pub))
	if h := historyOf(t, dir, "--key", keyFile); h.Certificates != 3 || h.Refused != 3 {
		t.Errorf("with a key: %d certificates, %d refused; want 3 and 3", h.Certificates, h.Refused)
	}
	_, out, errOut := tell("history", dir, "--key", keyFile)
	if !strings.Contains(out, "; 3 refused") || !strings.Contains(errOut, "it is not signed") || !strings.Contains(errOut, "does not verify") {
		t.Errorf("history says %s%s; want what was refused, and why", out, errOut)
	}
}

// TestHistoryRegistry pushes certificates and reads them back, from a repository and
// from a layout.
func TestHistoryRegistry(t *testing.T) {
	repo := registryHost(t) + "/owner/nodes"
	dir := t.TempDir()
	args := []string{"push"}
	for day := range 13 {
		args = append(args, write(t, dir, daily(t, "n1", 2, day)))
	}
	if code, _, errOut := tell(append(args, repo)...); code != exit.Pass {
		t.Fatalf("push: %d, %s", code, errOut)
	}
	if h := historyOf(t, repo); h.Certificates != 13 || len(h.Drifts()) != 1 {
		t.Errorf("history of %s: %d certificates, %v; want 13 and one drift", repo, h.Certificates, h.Drifts())
	}
	if h := historyOf(t, repo, "--node", "n1", "--since", "2026-03-09"); h.Certificates != 5 {
		t.Errorf("since the 9th there are %d certificates; want 5", h.Certificates)
	}
	if h := historyOf(t, repo, dir); h.Certificates != 13 || h.Repeated != 13 {
		t.Errorf("repository and directory: %d certificates, %d repeated; want 13 and 13", h.Certificates, h.Repeated)
	}
	if code, _, errOut := tell("history", repo, "--node", "n2"); code != exit.NotDone {
		t.Errorf("a node that is not there: %d, %s", code, errOut)
	}
	if _, err := layout.Write(dir, empty.Index); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := tell("history", "oci:"+dir); code != exit.NotDone || !strings.Contains(errOut, "none of the 0 files") {
		t.Errorf("an empty layout: %d, %s", code, errOut)
	}
}

func TestHistoryPage(t *testing.T) {
	dir := t.TempDir()
	for day := range 12 {
		write(t, dir, daily(t, "n1", 2, day))
	}
	page := filepath.Join(t.TempDir(), "page.html")
	if code, _, errOut := tell("history", dir, "--html", page); code != exit.Pass {
		t.Fatalf("history --html: %d, %s", code, errOut)
	}
	b, err := os.ReadFile(page)
	for _, want := range []string{"n1", "What drifted", "GPU 1"} {
		if err != nil || !strings.Contains(string(b), want) {
			t.Errorf("the page is %s, %v; want one with %q", b, err, want)
		}
	}
}

func TestParseSince(t *testing.T) {
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Time{
		"": {}, "2026-03-01": time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), "30d": now.AddDate(0, 0, -30), "1.5d": now.Add(-36 * time.Hour),
		"12h": now.Add(-12 * time.Hour), "2026-03-01T10:00:00+02:00": time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC),
	} {
		if got, err := parseSince(in, now); err != nil || !got.Equal(want) {
			t.Errorf("parseSince(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"-3h", "-3d", "3dd", "d", "yesterday"} {
		if got, err := parseSince(in, now); err == nil {
			t.Errorf("parseSince(%q) = %v; want an error", in, got)
		}
	}
}

// BenchmarkHistory reads 10,000 certificates of 100 machines with 8 GPUs each.
func BenchmarkHistory(b *testing.B) {
	dir := b.TempDir()
	var bytes int64
	for i := range 10_000 {
		st, err := os.Stat(write(b, dir, daily(b, fmt.Sprintf("n%02d", i%100), 8, i/100)))
		if err != nil {
			b.Fatal(err)
		}
		bytes += st.Size()
	}
	b.SetBytes(bytes)
	cpu := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	}
	b.ResetTimer()
	begun := cpu()
	defer func() { b.ReportMetric((cpu()-begun)/float64(b.N), "cpu-s/op") }()
	for range b.N {
		if code, out, errOut := tell("history", dir); code != exit.Pass || !strings.Contains(out, "10000 certificates of 100 machines; 100 drifts") {
			b.Fatalf("%d, %s", code, errOut)
		}
	}
}

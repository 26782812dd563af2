package platform

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// own writes a file of one's own, and forgets it after the test.
func own(t *testing.T, text string) string {
	t.Setenv(OwnFile, "")
	name := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

const mine = `platforms:
  mine: {gpu: h100-sxm, gpus_per_node: 8, aliases: [dgx h100], nics: {count: 4, gbit_each: 400, kind: RoCE}}
  other: {gpu: h999, gpus_per_node: 4}
gpus:
  h999: {arch: hopper, nvlink: {links: 12, uni_gbps: [300, data sheet, high]}}
sources:
  data sheet: {what: ours}
`

// TestOwn: a platform of a file is known by its key and aliases, before ours, in all of the process; a node of its GPUs is
// recognised as it.
func TestOwn(t *testing.T) {
	file := own(t, mine)
	key, err := Use(file + ":mine")
	if err != nil || key != "mine" {
		t.Fatal(key, err)
	}
	db, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"mine", "DGX H100"} {
		if got, err := db.Key(name); got != "mine" {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if g := db.GPUs["h999"]; g.Name != "h999" || g.NVLink.UniGBps.Source != "data sheet" || g.NVLink.Links.Source != ownSource {
		t.Errorf("%+v", g)
	}
	if gbit, _ := db.Platforms["mine"].NICs.Gbit(); gbit != 1600 {
		t.Errorf("NICs: %g Gb/s", gbit)
	}
	if r := db.Recognise(Node{GPUs: []NodeGPU{{Device: "2330"}}}); r.Platform != "mine" {
		t.Errorf("recognised as %q", r.Platform)
	}
	for _, name := range []string{"", "hgx-h200", "8 x H100, 8 x 400 Gb/s"} {
		if got, err := Use(name); got != name || err != nil {
			t.Errorf("%q: %q, %v", name, got, err)
		}
	}
	t.Setenv(OwnFile, "")
	if db, err := Load(); err != nil || db.Platforms["mine"] != nil {
		t.Errorf("without the file: %v", err)
	}
}

// TestOwnWrong: each error names the file, and what is wrong with it.
func TestOwnWrong(t *testing.T) {
	for _, tt := range [][2]string{
		{"", "EOF"},
		{"gpus: {}", "it has no platforms; write"},
		{"platforms: {a: {gpu: h100-sxm}, b: {gpu: h100-sxm}}", "several platforms, a, b"},
		{"platforms: {a: {gpu: h100}}", `there is no GPU "h100" in gpus`},
		{"platforms: {a: }", "platforms.a is empty"},
		{"gpus: {g: }\nplatforms: {a: {gpu: g}}", "gpus.g is empty"},
		{"platforms: {a: {gpu: h100-sxm, gpus: 8}}", "line 1: field gpus not found"},
		{"platforms: {a: {gpu: h100-sxm, nics: {count: 8, gbit_each: 400000}}}", "nics.gbit_each is 400000"},
		{"platforms: {a: {gpu: h100-sxm, nics: {count: 8, gbit_each: [400, x, high]}}}", `there is no source "x"`},
		{"platforms: {a: {gpu: h100-sxm, nics: {count: 8, gbit_each: [400, x]}}}", "line 1: a figure is"},
		{"platforms: [a", "line 1"},
	} {
		file := own(t, tt[0])
		_, err := Use(file)
		if err == nil || !strings.Contains(err.Error(), tt[1]) || !strings.Contains(err.Error(), "mine.yaml") {
			t.Errorf("%s: %v; want %q", tt[0], err, tt[1])
		}
	}
	if _, err := Use(own(t, mine) + ":third"); err == nil || !strings.Contains(err.Error(), `no platform "third"; there are: mine, other`) {
		t.Error(err)
	}
}

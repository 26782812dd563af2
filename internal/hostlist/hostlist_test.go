package hostlist

import (
	"slices"
	"strings"
	"testing"
)

func TestExpandHosts(t *testing.T) {
	for _, tt := range []struct {
		in     string
		digits bool
		want   string // or part of an error
	}{
		{"", false, ""},
		{"n1", false, "n1"},
		{"n[1-3],m7", false, "n1 n2 n3 m7"},
		{"n[08-11,3]", false, "n08 n09 n10 n11 n3"},
		{"r[1-2]n[1-2]", false, "r1n1 r1n2 r2n1 r2n2"},
		{"r[1-2]-ib", false, "r1-ib r2-ib"},
		{"vm,bsq[1:1-2]", true, "vm bsq1 bsq2"},
		{"n[3:8-10,20].c", true, "n008.c n009.c n010.c n020.c"},
		{"n[1-", false, "a [ without ]"},
		{"n]1", false, "a ] without ["},
		{"n[2-1]", false, "is not a range"},
		{"n[a]", false, "is not a range"},
		{"n[1-2]", true, "does not begin with a number of digits"},
		{"n[0-999999999]", false, "more than 65536 hosts"},
		{"a[0-999]b[0-999]", false, "more than 65536 hosts"},
	} {
		got, err := Expand(tt.in, tt.digits)
		s := strings.Join(got, " ")
		if err != nil {
			s = err.Error()
		}
		if err == nil && s != tt.want || err != nil && (tt.want == "" || !strings.Contains(s, tt.want)) {
			t.Errorf("Expand(%q, %v) = %q; want %q", tt.in, tt.digits, s, tt.want)
		}
	}
}

func FuzzExpandHosts(f *testing.F) {
	for _, s := range []string{"n[1-3],m7", "r[1-2]n[01-2]", "vm,bsq[1:1-2]", "n[", "[[]]", "n[1:0-99999]"} {
		f.Add(s, true)
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, s string, digits bool) {
		got, err := Expand(s, digits)
		if err != nil {
			return
		}
		if len(got) > Most {
			t.Fatalf("%d hosts", len(got))
		}
		for _, h := range got {
			if h == "" || strings.ContainsAny(h, "[]") {
				t.Errorf("Expand(%q) has %q", s, h)
			}
		}
	})
}

func TestCompress(t *testing.T) {
	for in, want := range map[string]string{
		"":                            "",
		"n1":                          "n1",
		"node03 node04 node05 node12": "node[03-05,12]",
		"node12 node05 node03 node04": "node[03-05,12]",
		"n8 n9 n10 n11":               "n[8-11]",
		"n098 n099 n100 n101":         "n[098-101]",
		"r1n1 r1n2 r2n1":              "r1n[1-2],r2n1",
		"gpu-a gpu-b gpu-a":           "gpu-a,gpu-b",
		"n1.c n2.c m1.c":              "n[1-2].c,m1.c",
		"x[1] n1":                     "x[1],n1",
		"n01 n1":                      "n01,n1",
		"10.0.0.1 10.0.0.2":           "10.0.0.[1-2]",
		"n99999999999999999999":       "n99999999999999999999",
	} {
		if got := Compress(strings.Fields(in)); got != want {
			t.Errorf("Compress(%q) = %q; want %q", in, got, want)
		}
	}
}

// FuzzCompress: what is compressed expands to the same hosts.
func FuzzCompress(f *testing.F) {
	for _, s := range []string{"n1 n2 n3 m7", "r1n01 r1n02 r2n02", "n0 n00 n000 n1", "a 1 01", "n08 n09 n10 n100"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		hosts := strings.Fields(s)
		if strings.ContainsAny(s, "[],") || len(hosts) > 100 {
			return
		}
		list := Compress(hosts)
		got, err := Expand(list, false)
		if err != nil {
			t.Fatalf("Compress(%q) = %q: %v", hosts, list, err)
		}
		slices.Sort(got)
		slices.Sort(hosts)
		if hosts = slices.Compact(hosts); !slices.Equal(got, hosts) {
			t.Errorf("Compress(%q) = %q, which is %q", hosts, list, got)
		}
	})
}

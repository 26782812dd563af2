package knob

import (
	"strings"
	"testing"
)

func TestProblems(t *testing.T) {
	for set, want := range map[string]string{
		"NCCL_DEBUG=INFO":        "",
		"NCCL_DEBUG=off":         "",
		"NCCL_IB_HAC=mlx5_0":     "0 NCCL_IB_HAC near NCCL_IB_HCA: NCCL_IB_HAC is unknown",
		"NCCL_FOOBAR_QUUX=1":     "0 NCCL_FOOBAR_QUUX near : NCCL_FOOBAR_QUUX is unknown",
		"NCCL_ALGO=Rings":        "refused NCCL_ALGO=\"Rings\": ",
		"NCCL_IB_DISABLE=true":   "0 NCCL_IB_DISABLE=\"true\": it is not an integer",
		"NCCL_NVLS_ENABLE=0":     "", // no effect on this engine alone
		"NCCL_TESTS_MIN_BW=1":    "",
		"NCLL_P2P_DISABLE=1":     "0 NCLL_P2P_DISABLE near NCCL_P2P_DISABLE: NCLL_P2P_DISABLE is unknown",
		"nccl_debug=INFO":        "0 nccl_debug near NCCL_DEBUG: nccl_debug is unknown",
		"RCCL_MSCCL_ENABLE=0":    "", // another library's
		"NCL_ROOT=/opt":          "",
		"conf NCCL_DEBUG=INFO\n": "",
		"conf # a\n\nNCCL_DEBUG = INFO\nNCCL_IB_HAC=1\n": "4 NCCL_IB_HAC near NCCL_IB_HCA: NCCL_IB_HAC is unknown|3 NCCL_DEBUG is not set: NCCL takes everything before",
		"conf NCCL_DEBUG=INFO\nNCCL_DEBUG=WARN\n":        "2 NCCL_DEBUG is set at line 1 already",
		"conf ; a\n":                 "1 \"; a\" is not KEY=VALUE",
		"conf NCCL_DEBUG=off\nx y\n": "2 \"x y\" is not KEY=VALUE",
	} {
		conf, file := strings.CutPrefix(set, "conf ")
		var got []Problem
		if file {
			got = Problems("", conf)
		} else {
			got = Problems(set, "")
		}
		n := 0
		for part := range strings.SplitSeq(want, "|") {
			if part == "" {
				continue
			}
			n++
			found := false
			for _, p := range got {
				text := string(rune('0'+p.Line)) + " "
				if p.Refused {
					text = "refused "
				}
				if p.Unknown {
					text += p.Name + " near " + p.Near + ": "
				}
				found = found || strings.HasPrefix(text+p.Text, part)
			}
			if !found {
				t.Errorf("%q: %+v, want %s", set, got, part)
			}
		}
		if len(got) != n {
			t.Errorf("%q: %+v, want %d", set, got, n)
		}
	}
}

// TestSlowers: all are variables that the table has, each once, and what does cost speed is what may.
func TestSlowers(t *testing.T) {
	seen := map[string]bool{}
	for i := range Slowers {
		s := &Slowers[i]
		if seen[s.Name] || knobNamed(s.Name) == nil && s.Name != "CUDA_LAUNCH_BLOCKING" || s.Effect == "" || s.Advice == "" || !s.Between && !s.Inside {
			t.Errorf("%+v", s)
		}
		seen[s.Name] = true
		for _, v := range []string{"0", "1", "LOC", "none", "TRACE", "Socket"} {
			if s.Does(v) && !s.May(v) {
				t.Errorf("%s=%s costs speed, and may not", s.Name, v)
			}
			if s.Harms(v) && !s.Does(v) {
				t.Errorf("%s=%s harms, and costs nothing", s.Name, v)
			}
		}
	}
}

func TestProtocols(t *testing.T) {
	for value, want := range map[string]string{
		"Simple":                           "",
		"LL":                               "does harms",
		"ll , ll":                          "does harms",
		"LL128":                            "does",
		"LL,LL128":                         "does",
		"LL,LL128,Simple":                  "",
		"^LL":                              "",
		"^LL128,LL":                        "",
		"^Simple":                          "does",
		"^Simple,LL128":                    "does harms",
		"Simple;allreduce:LL":              "does harms",
		"allreduce:^LL128;allgather:LL128": "does",
		"":                                 "",
	} {
		s, got := SlowerNamed("NCCL_PROTO"), ""
		if s.Does(value) {
			got = "does"
		}
		if s.Harms(value) {
			got += " harms"
		}
		if got != want {
			t.Errorf("NCCL_PROTO=%s: %q, want %q", value, got, want)
		}
	}
}

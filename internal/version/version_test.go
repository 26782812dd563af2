package version

import (
	"runtime/debug"
	"testing"
)

func TestFill(t *testing.T) {
	b := &debug.BuildInfo{Main: debug.Module{Version: "v0.1.0"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
	}}
	for _, tt := range []struct {
		in   Info
		want string
	}{
		{Info{}, "v0.1.0 (0123456789ab, 2026-01-02T03:04:05Z)"},
		{Info{Version: "v2"}, "v2 (0123456789ab, 2026-01-02T03:04:05Z)"},
		{Info{Version: "v2", Commit: "fe"}, "v2 (fe)"},
	} {
		tt.in.fill(b)
		if got := tt.in.String(); got != tt.want {
			t.Errorf("fill = %q; want %q", got, tt.want)
		}
	}
}

package membw

import (
	"io"
	"reflect"
	"strings"
	"testing"
)

func TestParseTest(t *testing.T) {
	for args, want := range map[string]TestOptions{
		"": {Mode: "quick"},
		"--memory=pageable --dtod --htod --device=all --csv --wc":                   {Mode: "quick", Pageable: true, WriteCombined: true, HtoD: true, DtoD: true, All: true, CSV: true},
		"-mode=range --start=10 --end 35 -increment=10 --wc --cputiming --device=3": {Mode: "range", Start: 10, End: 35, Increment: 10, WriteCombined: true, Device: 3, CPUTiming: true},
		"--mode=shmoo": {Mode: "shmoo"},
	} {
		got, done, err := ParseTest(strings.Fields(args), io.Discard)
		if err != nil || done || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v; want %+v", args, got, err, want)
		}
	}
}

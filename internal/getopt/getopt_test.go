package getopt

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

var testFlags = []Flag{{Short: 'a', Long: "all"}, {Short: 'F'}, {Short: 's', Long: "size", Value: Required}, {Long: "sizes"}, {Long: "step", Value: Required}, {Short: 'g', Long: "mcg", Value: Ignored}, {Long: "format", Also: "output", Value: Required}}

// parsed is what Parse did, as one text.
func parsed(args []string, flags []Flag) (string, error) {
	var out []string
	operands, err := Parse(args, flags, func(i int, typed, value string) error {
		out = append(out, fmt.Sprintf("%s=%s", typed, value))
		return nil
	})
	return strings.Join(append(append(out, "--"), operands...), " "), err
}

func TestParse(t *testing.T) {
	for _, tt := range []struct{ args, want, err string }{
		{"-s8 -s 8 --size=8 --size 8 --siz 8", "", "option '--siz' is ambiguous: '--size' or '--sizes'?"},
		{"-s8 -s -8 --size= --size -a", "-s=8 -s=-8 --size= --size=-a --", ""},
		{"-aFs8 x -Fa - --st 3 -- -a", "-a= -F= -s=8 -F= -a= --step=3 -- x - -a", ""},
		{"--output json --format=x", "--format=json --format=x --", ""},
		{"--outp json", "", "unrecognized option '--outp'; did you mean '--step'?"},
		{"-g --mcg=3 --mcg x", "-g= --mcg=3 --mcg= -- x", ""},
		{"-q", "", "invalid option -- 'q'"},
		{"-as", "", "option requires an argument -- 's'"},
		{"--size", "", "option '--size' requires an argument"},
		{"--all=1", "", "option '--all' doesn't allow an argument"},
	} {
		got, err := parsed(strings.Fields(tt.args), testFlags)
		if tt.err != "" {
			var e *Error
			if !errors.As(err, &e) || e.Error() != tt.err {
				t.Errorf("%s: %v; want %s", tt.args, err, tt.err)
			}
		} else if err != nil || got != tt.want {
			t.Errorf("%s: %q, %v; want %q", tt.args, got, err, tt.want)
		}
	}
	stop := errors.New("stop")
	if _, err := Parse([]string{"-a", "-q"}, testFlags, func(int, string, string) error { return stop }); err != stop {
		t.Errorf("the error of set: %v", err)
	}
}

// FuzzParse compares with util-linux's getopt, which is getopt_long for the shell.
func FuzzParse(f *testing.F) {
	program, err := exec.LookPath("getopt")
	if err != nil {
		f.Skip("there is no getopt: apt-get install util-linux")
	}
	flags := slices.DeleteFunc(slices.Clone(testFlags), func(f Flag) bool { return f.Value == Ignored || f.Also != "" })
	for _, s := range []string{"-a", "-aF s -s8", "--si=2 x", "--sizes -- -a", "--step 1 --al", "-s\n-a", "--s=1", "-sa -F"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Fields(line)
		for _, a := range args {
			if strings.Trim(a, "abFsxiztepl0123456789-=") != "" {
				t.Skip("getopt quotes it")
			}
		}
		cmd := exec.Command(program, append([]string{"-u", "-o", "aFs:", "-l", "all,size:,sizes,step:", "--"}, args...)...)
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, bad := cmd.Output()
		var got []string
		operands, err := Parse(args, flags, func(_ int, typed, value string) error {
			got = append(got, typed, value)
			return nil
		})
		if (bad != nil) != (err != nil) {
			t.Fatalf("%q: %q, %v; getopt: %q, %v", args, got, err, out, bad)
		}
		if got := strings.Join(append(append(got, "--"), operands...), " "); err == nil && !slices.Equal(strings.Fields(got), strings.Fields(string(out))) {
			t.Fatalf("%q: %q; getopt: %q", args, got, out)
		}
	})
}

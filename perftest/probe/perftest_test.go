package probe

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/assay-hpc/assay/internal/getopt"
	"github.com/assay-hpc/assay/internal/golden"
)

// An option is one of perftest's.
type option struct {
	short byte // 0: none
	long  string
	value bool
}

func (o option) String() string {
	if o.short == 0 {
		return "--" + o.long
	}
	return fmt.Sprintf("-%c, --%s", o.short, o.long)
}

// perftestOptions are those in testdata/perftest.txt, and its first line.
func perftestOptions(t *testing.T) (all []option, about string) {
	b, err := os.ReadFile("testdata/perftest.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if f[0] == "#" {
			about += strings.TrimPrefix(strings.TrimSpace(line), "#")
			continue
		}
		o := option{long: f[0], value: len(f) > 2}
		if f[1] != "-" {
			o.short = f[1][0]
		}
		all = append(all, o)
	}
	if len(all) < 150 {
		t.Fatalf("%d options; want 150 and more", len(all))
	}
	return all, about
}

// spelled are the ways in which an option is typed, with a value if it takes one.
func (o option) spelled() (all [][]string) {
	long := "--" + o.long
	all = [][]string{{long}}
	if o.value {
		all = [][]string{{long + "=1"}, {long, "1"}}
	}
	switch {
	case o.short == 0 || o.long == "source_ip": // whose letter is raw Ethernet's
	case o.value:
		all = append(all, []string{"-" + string(o.short), "1"}, []string{"-" + string(o.short) + "1"})
	default:
		all = append(all, []string{"-" + string(o.short)})
	}
	return all
}

// treated is what becomes of an option: "supported", or why it is refused.
func (o option) treated() string {
	if o.long == "source_ip" {
		return "supported as --bind_source_ip, as in 4.5; -j, raw Ethernet, is refused"
	}
	if i := slices.IndexFunc(flags, func(f flag) bool { return f.long == o.long }); i >= 0 {
		if strings.HasPrefix(flags[i].help, "nothing") {
			return "accepted without effect: " + strings.TrimPrefix(flags[i].help, "nothing: ")
		}
		if flags[i].long == "rate_limit_type" {
			return "SW is supported; HW and PP are refused: " + nicRates
		}
		return "supported"
	}
	for _, u := range unsupported {
		if u.long == o.long {
			return "refused: " + u.why
		}
	}
	return ""
}

// TestPerftestOptions: each option of perftest's parser, however it is typed, is known with the same
// letter and the same appetite for a value; it is either taken or refused with the reason.
func TestPerftestOptions(t *testing.T) {
	options, _ := perftestOptions(t)
	for _, o := range options {
		how := o.treated()
		if how == "" {
			t.Errorf("perftest has %v", o)
		}
		for _, args := range o.spelled() {
			err := treat(args)
			if refused := strings.HasPrefix(how, "refused"); refused != (err != nil && strings.Contains(err.Error(), "not supported: ")) {
				t.Errorf("%v: %v; the table says %q", args, err, how)
			}
		}
	}
}

// treat parses arguments for each tool, and returns an error that tells of the option, not of its
// value or of the tool.
func treat(args []string) error {
	for _, tool := range Tools() {
		_, operands, err := tool.ParseInto(Default(tool.Operation, tool.Measure), args)
		switch e := err.(type) {
		case *FlagError:
			if strings.HasPrefix(e.Text, "not supported: ") {
				return err
			}
		case *getopt.Error:
			return err
		}
		if len(operands) > 0 && err == nil {
			return fmt.Errorf("%v takes no value here", args)
		}
	}
	return nil
}

// TestPerftestTable: docs/ib.md has the table of perftest's options, ours is the only source.
func TestPerftestTable(t *testing.T) {
	if os.Getenv("ASSAY_RDMA_VM") != "" {
		t.Skip("the virtual machine has no docs/; this needs no RDMA device, and runs without it")
	}
	options, about := perftestOptions(t)
	var b strings.Builder
	n := map[string]int{}
	var rows []string
	for _, o := range options {
		how := o.treated()
		word, _, _ := strings.Cut(how, " ")
		n[strings.TrimSuffix(word, ":")]++
		rows = append(rows, fmt.Sprintf("| `%v` | %s |", o, how))
	}
	commit := strings.Fields(about[strings.Index(about, "commit ")+len("commit "):])[0]
	fmt.Fprintf(&b, "Of the %d options of perftest at commit `%.12s` (version 6.29, with everything that it can be built\nwith) %d are supported, %d accepted without effect, and %d refused by name with the reason, status 2.\n\n", len(options), commit, n["supported"]+n["SW"], n["accepted"], n["refused"])
	b.WriteString("| option | here |\n|---|---|\n" + strings.Join(rows, "\n") + "\n")
	golden.Part(t, "../../docs/ib.md", "<!-- options: go test ./perftest/probe -run TestPerftestTable -args -update writes them -->\n", "<!-- end of the options -->", b.String())
}

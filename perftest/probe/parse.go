package probe

import (
	"errors"
	"fmt"
	"strings"

	"github.com/assay-hpc/assay/internal/getopt"
)

// Parse parses a tool's arguments and checks them. Its errors are getopt.ErrHelp, getopt.ErrVersion,
// *getopt.Error and *FlagError.
func (t Tool) Parse(args []string) (Config, error) {
	c, operands, err := t.ParseInto(Default(t.Operation, t.Measure), args)
	switch {
	case err != nil:
		return c, err
	case len(operands) > 1:
		return c, getopt.Errorf("%q and %q: there is one server to connect to", operands[0], operands[1])
	case len(operands) == 1:
		if c.Host = operands[0]; c.Host == "" {
			return c, getopt.Errorf("the server's name is empty")
		}
	}
	return c, c.Check()
}

// ParseInto changes a configuration as a tool's arguments say, and returns it with the arguments
// that are not flags. It does not check the result. Its errors are those of Parse.
func (t Tool) ParseInto(c Config, args []string) (Config, []string, error) {
	var table []getopt.Flag
	for _, f := range flags {
		entry := getopt.Flag{Short: f.short, Long: f.long, Also: also[f.long]}
		if f.arg != "" {
			entry.Value = getopt.Required
		}
		table = append(table, entry)
	}
	for _, u := range unsupported {
		table = append(table, getopt.Flag{Short: u.short, Long: u.long, Value: getopt.Ignored})
	}
	operands, err := getopt.Parse(args, table, func(i int, typed, value string) error {
		if i >= len(flags) {
			return &FlagError{Flag: typed, Text: "not supported: " + unsupported[i-len(flags)].why}
		}
		err := flags[i].set(&c, value)
		if err == nil || errors.Is(err, getopt.ErrHelp) || errors.Is(err, getopt.ErrVersion) {
			return err
		}
		return &FlagError{Flag: typed, Text: err.Error()}
	})
	return c, operands, err
}

// FlagNames returns a tool's flags as users type them.
func (t Tool) FlagNames() (out []string) {
	for _, f := range flags {
		if !f.offered(t) {
			continue
		}
		if f.short != 0 {
			out = append(out, "-"+string(f.short))
		}
		if f.long != "" {
			out = append(out, "--"+f.long)
		}
	}
	return out
}

// Usage is the text of --help of the program NAME.
func (t Tool) Usage(name string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage: %s [FLAG...]        start a server and wait for a client\n       %s [FLAG...] HOST   connect to the server at HOST\n", name, name)
	group := ""
	for _, f := range flags {
		if !f.offered(t) {
			continue
		}
		if f.group != group {
			group = f.group
			fmt.Fprintf(&b, "\n%s\n", group)
		}
		head := "      --" + f.long
		if f.short != 0 {
			head = fmt.Sprintf("  -%c, --%s", f.short, f.long)
		}
		if f.arg != "" {
			head += " " + f.arg
		}
		fmt.Fprintf(&b, "%-34s  %s\n", head, f.help)
	}
	b.WriteString("\nBoth sides need the same test, sizes, iterations and queue pairs. Exit status: 0 passed, 1 failed or below a limit,\n2 wrong usage, 3 could not run.\n")
	return b.String()
}

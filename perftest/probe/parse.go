package probe

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// ErrHelp and ErrVersion request a text instead of a test.
var (
	ErrHelp    = errors.New("help was asked for")
	ErrVersion = errors.New("the version was asked for")
)

// A UsageError is a command line that cannot be parsed.
type UsageError struct{ text string }

func (e *UsageError) Error() string { return e.text }

func usagef(format string, a ...any) error { return &UsageError{fmt.Sprintf(format, a...)} }

// A parser parses a command line as getopt_long does: -s65536, -s 65536, bundles such
// as -aF, --size=65536, --size 65536, unambiguous prefixes of long names, operands
// anywhere, "--" before operands that begin with a minus.
type parser struct {
	tool     Tool
	config   Config
	rest     []string
	operands []string
}

// Parse parses a tool's arguments and checks them. Its errors are ErrHelp, ErrVersion,
// *UsageError and *FlagError.
func (t Tool) Parse(args []string) (Config, error) {
	c, operands, err := t.ParseInto(Default(t.Operation, t.Measure), args)
	switch {
	case err != nil:
		return c, err
	case len(operands) > 1:
		return c, usagef("%q and %q: there is one server to connect to", operands[0], operands[1])
	case len(operands) == 1:
		if c.Host = operands[0]; c.Host == "" {
			return c, usagef("the server's name is empty")
		}
	}
	return c, c.Check()
}

// ParseInto changes a configuration as a tool's arguments say, and returns it with the arguments
// that are not flags. It does not check the result. Its errors are those of Parse.
func (t Tool) ParseInto(c Config, args []string) (Config, []string, error) {
	p := &parser{tool: t, config: c, rest: args}
	for len(p.rest) > 0 {
		if err := p.next(); err != nil {
			return p.config, nil, err
		}
	}
	return p.config, p.operands, nil
}

// next consumes an argument, and the following one if that is its value.
func (p *parser) next() error {
	a := p.rest[0]
	p.rest = p.rest[1:]
	switch {
	case a == "--":
		p.operands, p.rest = append(p.operands, p.rest...), nil
		return nil
	case strings.HasPrefix(a, "--"):
		return p.long(a[2:])
	case len(a) > 1 && a[0] == '-':
		return p.short(a[1:])
	}
	p.operands = append(p.operands, a)
	return nil
}

// short parses a bundle: flags without values, except that the last may have one.
func (p *parser) short(bundle string) error {
	for i := 0; i < len(bundle); i++ {
		name := "-" + bundle[i:i+1]
		f, err := p.find(name, func(f flag) bool { return f.short == bundle[i] })
		if err != nil {
			return err
		}
		if f.arg == "" {
			if err := f.apply(&p.config, name, ""); err != nil {
				return err
			}
			continue
		}
		value := bundle[i+1:]
		if value == "" {
			if value, err = p.value(name); err != nil {
				return err
			}
		}
		return f.apply(&p.config, name, value)
	}
	return nil
}

func (p *parser) long(a string) error {
	name, value, has := strings.Cut(a, "=")
	name, err := p.complete(name)
	if err != nil {
		return err
	}
	typed := "--" + name
	f, err := p.find(typed, func(f flag) bool { return f.long == name })
	switch {
	case err != nil:
		return err
	case f.arg == "" && has:
		return usagef("%s takes no value", typed)
	case f.arg != "" && !has:
		if value, err = p.value(typed); err != nil {
			return err
		}
	}
	return f.apply(&p.config, typed, value)
}

// value consumes the next argument and returns it.
func (p *parser) value(flag string) (string, error) {
	if len(p.rest) == 0 {
		return "", usagef("%s needs a value", flag)
	}
	v := p.rest[0]
	p.rest = p.rest[1:]
	return v, nil
}

// complete finds a long name by its prefix.
func (p *parser) complete(name string) (string, error) {
	var names, found []string
	for _, f := range flags {
		names = append(names, f.long)
	}
	for _, u := range unsupported {
		names = append(names, u.long)
	}
	for _, n := range names {
		if n == name && n != "" {
			return n, nil
		}
		if n != "" && strings.HasPrefix(n, name) {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 0:
		return "", usagef("there is no flag --%s; did you mean --%s?", name, words.Nearest(name, slices.DeleteFunc(names, func(n string) bool { return n == "" })))
	case 1:
		return found[0], nil
	}
	return "", usagef("--%s may be --%s or --%s", name, found[0], found[1])
}

// find looks up a flag. The error for a flag that only perftest supports gives the reason.
func (p *parser) find(typed string, is func(flag) bool) (flag, error) {
	if i := slices.IndexFunc(flags, is); i >= 0 {
		return flags[i], nil
	}
	for _, u := range unsupported {
		if is(flag{short: u.short, long: u.long}) {
			return flag{}, &FlagError{Flag: typed, Text: "not supported: " + u.why}
		}
	}
	var names []string
	for _, f := range flags {
		if f.short != 0 && f.offered(p.tool) {
			names = append(names, string(f.short))
		}
	}
	slices.Sort(names)
	return flag{}, usagef("there is no flag %s; there are -%s", typed, strings.Join(names, ""))
}

// apply sets a flag's value; an error names the flag as it was typed.
func (f flag) apply(c *Config, typed, value string) error {
	err := f.set(c, value)
	if err == nil || errors.Is(err, ErrHelp) || errors.Is(err, ErrVersion) {
		return err
	}
	return &FlagError{Flag: typed, Text: err.Error()}
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

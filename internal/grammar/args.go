package grammar

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Args returns a command line with the flags of its command moved before the arguments: the flag
// package stops at the first argument. The order stays for commands that parse their own flags, and
// for runners, which run another program's command line.
func Args(app *cli.App, args []string, runners ...string) []string {
	if len(args) < 2 {
		return args
	}
	if args[len(args)-1] == "--generate-bash-completion" { // completion request of a shell; the flag must stay last
		forget(app.Commands)
		return args
	}
	cmd, n := app.Command(args[1]), 2
	for cmd != nil && len(cmd.Subcommands) > 0 && n < len(args) {
		i := slices.IndexFunc(cmd.Subcommands, func(s *cli.Command) bool { return s.HasName(args[n]) })
		if i < 0 {
			return args
		}
		cmd, n = cmd.Subcommands[i], n+1
	}
	if cmd == nil {
		return args
	}
	if n+1 == len(args) && args[n] == "--version" {
		return append(args[:1:1], "--version")
	}
	if cmd.SkipFlagParsing || slices.Contains(runners, cmd.Name) {
		return args
	}
	return append(args[:n:n], flagsFirst(args[n:], func(name string) bool {
		i := slices.IndexFunc(cmd.Flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
		return i >= 0 && takesValue(cmd.Flags[i])
	})...)
}

// forget removes hidden flags from commands: a shell would offer them.
func forget(commands []*cli.Command) {
	for _, c := range commands {
		forget(c.Subcommands)
		c.Flags = slices.DeleteFunc(c.Flags, func(f cli.Flag) bool {
			v, ok := f.(cli.VisibleFlag)
			return ok && !v.IsVisible()
		})
	}
}

// flagsFirst moves flags to the front. Arguments after "--" stay where they are.
func flagsFirst(args []string, wantsValue func(name string) bool) []string {
	var flags, rest []string
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			rest = append(rest, args[i:]...)
			i = len(args)
		case len(a) < 2 || a[0] != '-':
			rest = append(rest, a)
		default:
			flags = append(flags, a)
			name := strings.TrimLeft(a, "-")
			if !strings.Contains(name, "=") && wantsValue(name) && i+1 < len(args) {
				i++
				flags = append(flags, args[i])
			}
		}
	}
	return append(flags, rest...)
}

// takesValue reports whether the value of a flag may be the next argument.
func takesValue(f cli.Flag) bool {
	switch f := f.(type) {
	case *cli.BoolFlag:
		return false
	case *cli.GenericFlag:
		b, ok := f.Value.(interface{ IsBoolFlag() bool })
		return !ok || !b.IsBoolFlag()
	}
	return true
}

package main

import (
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/flagsfirst"
)

// flagsFirst moves a command's flags before its arguments, so that people can
// write them in any order.
func flagsFirst(app *cli.App, args []string) []string {
	if len(args) < 2 || args[len(args)-1] == "--generate-bash-completion" { // a shell asks, and the question must stay last
		return args
	}
	cmd, n := app.Command(args[1]), 2
	if cmd != nil && len(cmd.Subcommands) > 0 {
		if len(args) < 3 {
			return args
		}
		i := slices.IndexFunc(cmd.Subcommands, func(s *cli.Command) bool { return s.HasName(args[2]) })
		if i < 0 {
			return args
		}
		cmd, n = cmd.Subcommands[i], 3
	}
	if cmd == nil {
		return args
	}
	return append(args[:n:n], flagsfirst.Args(args[n:], func(name string) bool { return wantsValue(cmd, name) })...)
}

// wantsValue reports whether the flag's value is the next argument.
func wantsValue(cmd *cli.Command, name string) bool {
	for _, f := range cmd.Flags {
		if slices.Contains(f.Names(), name) {
			_, isBool := f.(*cli.BoolFlag)
			return !isBool
		}
	}
	return false
}

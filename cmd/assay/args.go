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
	cmd := app.Command(args[1])
	if cmd == nil {
		return args
	}
	return append(args[:2:2], flagsfirst.Args(args[2:], func(name string) bool { return wantsValue(cmd, name) })...)
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

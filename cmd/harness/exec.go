package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/host/libnccl"
	"github.com/assay-hpc/assay/internal/host/machine"
)

// execName is the name of the command that takes another command as its arguments.
const execName = "exec"

// ignoredAtStart are the signals that were ignored when the program started, as with
// nohup. The program itself handles them, and execve resets handled signals to the
// default action, which would kill the command.
var ignoredAtStart = slices.DeleteFunc(slices.Clone(ending), func(s os.Signal) bool { return !signal.Ignored(s) })

func execCommand(errOut io.Writer) *cli.Command {
	o := envOptions{stderr: errOut}
	var override, quiet bool
	var engine string
	return &cli.Command{
		Name:      execName,
		Usage:     "run a command in the environment that this node needs",
		ArgsUsage: "[--] COMMAND [ARGUMENT…]",
		Description: "Becomes the command, with the same process id: launchers, signals and exit statuses are the command's. What is\n" +
			"set already stays, unless --override. Start each rank by it, so that each node has its own settings, and mpirun\n" +
			"too, for its own connections: harness exec -- mpirun -np 16 harness exec -q -- ./program",
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "override", Destination: &override, Usage: "replace variables that are set already"},
			&cli.StringFlag{Name: "engine", Destination: &engine, Usage: "the command's NCCL is assay's (`ours`), NVIDIA's (nvidia), or assay's where it is installed and there is a GPU driver (auto); ASSAY_NCCL says so for all commands, and without either the command has what it finds"},
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Destination: &quiet, Usage: "do not print to stderr what was set"},
		}, o.flags()...),
		Action: func(c *cli.Context) error {
			args := c.Args().Slice()
			if len(args) == 0 {
				return exit.Usagef("exec: which command? harness exec -- COMMAND")
			}
			program, err := exec.LookPath(args[0])
			if err != nil {
				return exit.With(exit.NotDone, fmt.Errorf("exec: %w", err))
			}
			wish, err := libnccl.Wish(engine)
			if err != nil {
				return exit.Usagef("exec: %w", err)
			}
			_, plan, err := o.plan(c.Context, os.Environ())
			if err != nil {
				return err
			}
			environ, nccl, err := libnccl.Choose(wish, machine.HasDriver(o.root), plan.Apply(os.Environ(), override))
			if err != nil {
				return exit.With(exit.NotDone, fmt.Errorf("exec: %w", err))
			}
			if !quiet {
				for _, w := range plan.Warnings {
					if w.Config {
						fmt.Fprintln(errOut, "harness:", w.What)
					}
				}
				fmt.Fprintln(errOut, "harness:", plan.Line(override))
			}
			if !quiet && nccl != "" {
				fmt.Fprintln(errOut, "harness:", nccl)
			}
			for _, s := range ignoredAtStart {
				signal.Ignore(s)
			}
			err = syscall.Exec(program, args, environ)
			return exit.With(exit.NotDone, fmt.Errorf("exec: %s: %w", program, err))
		},
	}
}

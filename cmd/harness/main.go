// Command harness runs inside an image, and certifies both the image and the machine
// that runs it: see harness certify --help.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/coll/perf"
	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/version"
	"github.com/assay-hpc/assay/internal/words"
	"github.com/assay-hpc/assay/perftest/mesh"
	"github.com/assay-hpc/assay/perftest/probe"
)

func main() {
	if was, err := image.Internal(context.Background(), os.Args); was {
		if err != nil {
			fmt.Fprintln(os.Stderr, "harness:", err)
			os.Exit(exit.NotDone)
		}
		return
	}
	go leave(os.Stderr, grace)
	os.Exit(run(os.Args, os.Stdout, os.Stderr))
}

// ending are the signals that end the program.
var ending = []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP}

// grace is longer than work in progress takes to stop after a signal, except for a
// library call that never returns.
const grace = 30 * time.Second

// leave ends the program some time after a signal, or at a second signal, whatever the
// program is doing.
func leave(errOut io.Writer, after time.Duration) {
	told := make(chan os.Signal, 2)
	signal.Notify(told, ending...)
	<-told
	select {
	case s := <-told:
		fmt.Fprintf(errOut, "harness: %v again: left without cleaning up\n", s)
	case <-time.After(after):
		fmt.Fprintf(errOut, "harness: something did not end within %v: left without cleaning up\n", after)
	}
	os.Exit(exit.NotDone)
}

// run is main without the process: it always returns an exit status.
func run(args []string, stdout, stderr io.Writer) int {
	out, errOut := newConsole(stdout), newConsole(stderr)
	defer func() { _ = errors.Join(out.Flush(), errOut.Flush()) }() // an incomplete character
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	defer stop()
	if t, ok := ibProgram(args[0]); ok {
		return runIB(ctx, t, args, out, errOut)
	}
	if op, ok := perfProgram(args[0]); ok {
		return runPerf(ctx, op, args, out, errOut)
	}
	if code, ok := runBandwidth(ctx, args, out, errOut); ok {
		return code
	}
	app := newApp(out, errOut)
	err := app.RunContext(ctx, grammar.Args(app, args, execName))
	code := exit.Of(err)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(errOut, "harness:", err)
	}
	return code
}

// newApp returns the command line. It holds no state between runs.
func newApp(out, errOut io.Writer) *cli.App {
	v := version.Get()
	app := &cli.App{
		Name:                 "harness",
		Usage:                "certify an image, and the machine that it runs on, from inside",
		Version:              v.String(),
		Writer:               out,
		ErrWriter:            errOut,
		EnableBashCompletion: true,
		Suggest:              true,
		OnUsageError:         onUsageError,
		ExitErrHandler:       func(*cli.Context, error) {}, // run decides
		Action:               noCommand,
		Commands: slices.Concat(
			grammar.Group("Certify", certifyCommand(out, errOut), reportCommand(out, errOut), verifyCommand(out), signCommand(out), pushCommand(out), historyCommand(out, errOut)),
			grammar.Group("Measure", collCommand(out, errOut), ibCommand(out, errOut), bandwidthCommand(out, errOut), huntCommand(out, errOut), trainCommand(out), watchCommand(out)),
			grammar.Group("Understand", explainCommand(out), judgeCommand(out), auditCommand(out), predictCommand(out), estimateCommand(out)),
			grammar.Group("Node", showCommand(out, errOut), healthCommand(out, errOut), diagCommand(out, errOut), applyCommand(errOut), keepCommand(out, errOut), unmarkCommand(out), preflightCommand(out, errOut), execCommand(errOut)),
			grammar.Group("This program", versionCommand(out), grammar.CompletionCommand("print a completion script for a shell", (*cli.App).ToFishCompletion), grammar.ManCommand(out, "harness", ownHelp)),
			[]*cli.Command{identifyCommand(out)},
		),
	}
	grammar.Output(app.Commands)
	for _, c := range app.Commands {
		c.OnUsageError = onUsageError
		for _, s := range c.Subcommands {
			s.OnUsageError = onUsageError
		}
	}
	return app
}

// ownHelp returns the help of commands that parse their flags themselves.
func ownHelp(command string) string {
	switch command {
	case "harness coll":
		return perf.Usage("harness coll OP [FLAG...]")
	case "harness ib":
		return probe.Tools()[0].Usage("harness ib write_bw") + "\n\n" + mesh.Usage()
	}
	return ""
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	where := "harness --help"
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != "harness" {
		where = "harness " + c.Command.Name + " --help"
	}
	return exit.Usagef("%w (see %s)", err, where)
}

// showCommand contains the commands that inspect the machine and the image without
// measuring.
func showCommand(out, errOut io.Writer) *cli.Command {
	return &cli.Command{
		Name: "show", Usage: "show topology, platform, environment or packages",
		Subcommands: []*cli.Command{
			topologyCommand(out, errOut), platformCommand(out, errOut), environmentCommand(out, errOut), inventoryCommand(out),
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return noCommand(c)
			}
			return cli.ShowSubcommandHelp(c)
		},
	}
}

// noCommand handles a missing or unknown command.
func noCommand(c *cli.Context) error {
	if !c.Args().Present() {
		return cli.ShowAppHelp(c)
	}
	path := map[string]string{} // of a command's name, or of a subcommand's of show
	for _, cmd := range c.App.VisibleCommands() {
		path[cmd.Name] = cmd.Name
		if cmd.Name == "show" {
			for _, sub := range cmd.Subcommands {
				path[sub.Name] = "show " + sub.Name
			}
		}
	}
	name := words.Nearest(c.Args().First(), slices.Sorted(maps.Keys(path)))
	return exit.Usagef("there is no command %q; did you mean %q?", c.Args().First(), path[name])
}

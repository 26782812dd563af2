// Command assay builds, certifies and publishes GPU-cluster images from
// matrix.yaml.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/containerd/log"
	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/image"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/version"
	"github.com/assay-hpc/assay/internal/words"
)

func main() {
	// BuildKit's client library logs messages that are of no use to users.
	_ = log.SetLevel("fatal")
	if was, err := image.Internal(context.Background(), os.Args); was {
		if err != nil {
			fmt.Fprintln(os.Stderr, "assay:", err)
			os.Exit(exit.NotDone)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program, whatever it waits for
	again = true
	// debootstrap and runc, which Debian does not put on the PATH of users other than root.
	_ = os.Setenv("PATH", os.Getenv("PATH")+":/usr/local/sbin:/usr/sbin:/sbin")
	code := run(ctx, os.Args, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command and returns its exit status. Part of its output comes from
// registries, images and certificates, so run escapes what could control a terminal. The
// progress of builds is written separately.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out, errOut := words.NewWriter(stdout), words.NewWriter(stderr)
	defer out.Flush()
	defer errOut.Flush()
	return carryOut(ctx, args, out, errOut)
}

func carryOut(ctx context.Context, args []string, out, errOut io.Writer) int {
	app := newApp(out, errOut)
	err := app.RunContext(ctx, grammar.Args(app, args))
	var ran reported
	switch {
	case err == nil:
		return 0
	case errors.As(err, &ran):
		return int(ran)
	case ctx.Err() != nil:
		fmt.Fprintln(errOut, "assay: interrupted")
		return exit.NotDone
	}
	if text := err.Error(); text != "" {
		fmt.Fprintln(errOut, "assay: "+text)
	}
	return exit.Of(err)
}

func newApp(out, errOut io.Writer) *cli.App {
	app := &cli.App{
		Name:    "assay",
		Usage:   "build, certify and publish GPU-cluster images from matrix.yaml",
		Version: version.Get().String(),
		Writer:  out, ErrWriter: errOut,
		EnableBashCompletion: true,
		// Attributes of a cache are separated by commas, so lists are given by repeated flags.
		DisableSliceFlagSeparator: true,
		Commands: slices.Concat(
			grammar.Group("Images", planCommand(), buildCommand(), certifyCommand(), publishCommand(), inspectCommand(), lockCommand(), componentCommand(), dockerfileCommand()),
			grammar.Group("Clusters", jobsCommand()),
			grammar.Group("This program", schemaCommand(), doctorCommand(), versionCommand(), grammar.CompletionCommand("print the completion script for bash, zsh or fish", fishCompletion), grammar.ManCommand(out, "assay", noHelp)),
		),
		// Errors are returned to run, which alone decides the exit status.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   onUsage,
		CommandNotFound: func(c *cli.Context, name string) {
			fmt.Fprintf(errOut, "assay: there is no command %q; \"assay help\" lists them\n", name)
		},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return exit.Usagef("there is no command %q; \"assay help\" lists them", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	grammar.Output(app.Commands)
	for _, c := range app.Commands {
		c.OnUsageError = onUsage
		for _, s := range c.Subcommands {
			s.OnUsageError = onUsage
		}
	}
	return app
}

// noHelp returns no further help: no command parses flags by itself.
func noHelp(string) string { return "" }

func onUsage(_ *cli.Context, err error, _ bool) error { return exit.With(exit.Usage, err) }

// fishCompletion queries the program itself, for targets, too.
func fishCompletion(*cli.App) (string, error) {
	return `# assay completion fish > ~/.config/fish/completions/assay.fish
complete -c assay -f -a '(eval (commandline -opc) --generate-bash-completion 2>/dev/null)'
`, nil
}

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/harness/site/nvsentinel"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/result"
)

func preflightCommand(out, errOut io.Writer) *cli.Command {
	var limit time.Duration
	return &cli.Command{
		Name: "preflight", Usage: "run a suite as a preflight check of NVSentinel", ArgsUsage: "[-- CERTIFY-FLAG...]",
		Description: "For an init container that NVSentinel's webhook adds to pods. Runs certify with the flags after -- (default: --suite quick),\n" +
			"and sends the result as a health event to PLATFORM_CONNECTOR_SOCKET, about the node NODE_NAME.\n" +
			"Exits 0 if all checks passed, or with PROCESSING_STRATEGY=STORE_ONLY when the event is sent; 1 if a check failed;\n" +
			"2 on wrong usage; 3 if checks could not run or the event could not be sent.",
		Flags: []cli.Flag{
			&cli.DurationFlag{Name: "limit", Value: 10 * time.Minute, Destination: &limit, Usage: "end the suite after `TIME`"},
		},
		Action: func(c *cli.Context) error {
			flags := c.Args().Slice()
			if len(flags) == 0 {
				flags = []string{"--suite", "quick"}
			}
			if limit <= 0 {
				return exit.Usagef("preflight: --limit must be more than 0")
			}
			if err := checkCertifyFlags(c.Context, "preflight", flags); err != nil {
				return err
			}
			return preflight(c.Context, limit, flags, out, errOut)
		},
	}
}

func preflight(ctx context.Context, limit time.Duration, flags []string, out, errOut io.Writer) error {
	node, socket := os.Getenv("NODE_NAME"), os.Getenv("PLATFORM_CONNECTOR_SOCKET")
	if node == "" || socket == "" {
		return exit.Usagef("preflight: NODE_NAME %q PLATFORM_CONNECTOR_SOCKET %q: NVSentinel's webhook sets both; set them", node, socket)
	}
	strategy, err := nvsentinel.ParseStrategy(os.Getenv("PROCESSING_STRATEGY"))
	if err != nil {
		return exit.Usagef("preflight: %w", err)
	}
	dir, err := os.MkdirTemp("", "assay-preflight-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	st, child, err := certifyChild(ctx, limit, dir, flags...)
	if err != nil {
		return fmt.Errorf("preflight: %w", err)
	}
	fmt.Fprintf(out, "%s", child.Stdout)
	fmt.Fprintf(errOut, "%s", child.Stderr)
	if err := nvsentinel.Send(ctx, socket, nvsentinel.Of(st, node, strategy)); err != nil {
		return exit.With(exit.NotDone, fmt.Errorf("preflight: %w", err))
	}
	if strategy == nvsentinel.Store || st.Predicate.Verdict == result.Pass {
		return nil
	}
	return exit.With(child.Status, fmt.Errorf("preflight: certify %s: %s", strings.Join(flags, " "), st.Predicate.Verdict))
}

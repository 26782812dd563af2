package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v3"

	"github.com/assay-hpc/assay/build/driver"
	"github.com/assay-hpc/assay/build/recipe"
	"github.com/assay-hpc/assay/internal/exit"
	"github.com/assay-hpc/assay/internal/grammar"
	"github.com/assay-hpc/assay/internal/result"
)

// componentDir is the directory, beside a matrix, of its own components.
const componentDir = "components"

func componentCommand() *cli.Command {
	return &cli.Command{
		Name: "component", Usage: "list, show, write and test components",
		Description: "A component is a directory with a component.yaml, assay's own or one beside the matrix. docs/components.md is the\n" +
			"reference.",
		Subcommands: []*cli.Command{componentList(), componentShow(), componentNew(), componentCopy(), componentTest()},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return exit.Usagef("component has no command %q; there are list, show, new, copy, test", c.Args().First())
			}
			return cli.ShowSubcommandHelp(c)
		},
	}
}

func componentList() *cli.Command {
	o := &common{}
	return &cli.Command{
		Name: "list", Usage: "list the components that the matrix may name",
		Flags: o.flags(grammar.Format(&o.output, "table", "json")),
		Action: func(c *cli.Context) error {
			w, err := o.open(c)
			if err != nil {
				return err
			}
			type entry struct {
				Name     string   `json:"name"`
				About    string   `json:"about,omitempty"`
				Versions []string `json:"versions,omitempty"`
				From     string   `json:"from,omitempty"`
				Builtin  string   `json:"builtin,omitempty"`
			}
			var all []entry
			for _, d := range w.Components() {
				all = append(all, entry{d.Name, d.About(), d.Versions(), d.From, d.Builtin()})
			}
			if o.output == "json" {
				return writeJSON(c.App.Writer, map[string]any{"schemaVersion": 1, "components": all})
			}
			tw := tabwriter.NewWriter(c.App.Writer, 0, 8, 2, ' ', 0)
			fmt.Fprintln(tw, "COMPONENT\tVERSIONS\tFROM\tWHAT IT IS")
			for _, e := range all {
				from := e.From
				if from == "" {
					from = "assay"
				}
				fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", e.Name, strings.Join(e.Versions, ", "), from, e.About)
			}
			return tw.Flush()
		},
	}
}

func componentShow() *cli.Command {
	o := &common{}
	var platform string
	return &cli.Command{
		Name: "show", Usage: "show a component on one target, with all conditions and variables filled in",
		ArgsUsage: "NAME [TARGET]",
		Flags: o.flags(
			&cli.StringFlag{Name: "platform", Usage: "`PLATFORM` (default: the target's first)", Destination: &platform},
			grammar.Format(&o.output, "yaml", "json"),
		),
		Action: func(c *cli.Context) error {
			if c.NArg() < 1 || c.NArg() > 2 {
				return exit.Usagef("component show wants a NAME, and at most one TARGET")
			}
			var p recipe.Platform
			if platform != "" {
				list, err := platforms([]string{platform})
				if err != nil {
					return err
				}
				p = list[0]
			}
			w, err := o.open(c)
			if err != nil {
				return err
			}
			part, err := w.Part(c.Args().Get(0), c.Args().Get(1), p)
			if err != nil {
				return err
			}
			if o.output == "json" {
				return writeJSON(c.App.Writer, map[string]any{"schemaVersion": 1, "component": part})
			}
			text, err := asYAML(part)
			if err != nil {
				return err
			}
			_, err = c.App.Writer.Write(text)
			return err
		},
	}
}

// asYAML returns a value's JSON as YAML, with its keys in the same order.
func asYAML(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var n yaml.Node
	if err := yaml.Unmarshal(text, &n); err != nil { // JSON is YAML
		return nil, err
	}
	plainStyle(&n)
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	err = enc.Encode(&n)
	return b.Bytes(), err
}

// plainStyle drops JSON's braces and quotes.
func plainStyle(n *yaml.Node) {
	n.Style = 0
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "\n") {
		n.Style = yaml.LiteralStyle
	}
	for _, child := range n.Content {
		plainStyle(child)
	}
}

// beside returns the directory of a component beside the matrix, as the matrix names it and on disk.
func (o *common) beside(name string) (written, dir string) {
	return "./" + componentDir + "/" + name, filepath.Join(filepath.Dir(o.matrix), componentDir, name)
}

func componentNew() *cli.Command {
	o := &common{}
	var source, license string
	return &cli.Command{
		Name: "new", Usage: "write a component beside the matrix, to be filled in",
		ArgsUsage: "NAME",
		Description: "It writes components/NAME with a component.yaml: of a package of that name, or with --source one that is compiled, with\n" +
			"a build.sh. The matrix then names it: the command says the line.",
		Flags: o.flags(
			&cli.StringFlag{Name: "source", Usage: "`URL` of the source's archive, in which {version} may stand", Destination: &source},
			&cli.StringFlag{Name: "license", Usage: "`LICENSE` of what is compiled, as SPDX says it", Value: "LicenseRef-unknown", Destination: &license},
		),
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exit.Usagef("component new wants one NAME")
			}
			written, dir := o.beside(c.Args().First())
			if err := driver.New(dir, c.Args().First(), source, license); err != nil {
				return err
			}
			return nextSteps(c, c.Args().First(), written, dir)
		},
	}
}

func nextSteps(c *cli.Context, name, written, dir string) error {
	_, err := fmt.Fprintf(c.App.Writer, "wrote %s; under the components of an image, write\n  %s: %s\nand then\n  assay component test %[2]s\n", dir, name, written)
	return err
}

func componentCopy() *cli.Command {
	o := &common{}
	return &cli.Command{
		Name: "copy", Usage: "write one of assay's components beside the matrix, to be changed",
		ArgsUsage: "NAME",
		Flags:     o.flags(),
		Action: func(c *cli.Context) error {
			if c.NArg() != 1 {
				return exit.Usagef("component copy wants one NAME")
			}
			w, err := o.open(c)
			if err != nil {
				return err
			}
			name := c.Args().First()
			written, dir := o.beside(name)
			if err := w.Copy(name, dir); err != nil {
				return err
			}
			return nextSteps(c, name, fmt.Sprintf("{from: %s, version: VERSION}", written), dir)
		},
	}
}

type componentTestFlags struct {
	common
	builderFlags
	platform cli.StringSlice
}

func componentTest() *cli.Command {
	o := &componentTestFlags{}
	return &cli.Command{
		Name: "test", Usage: "build a component on a target's base, and run its checks",
		ArgsUsage: "NAME [TARGET...]",
		Description: "It builds the image of the first target that has the component (or of those named), without what else is compiled\n" +
			"for it, and runs the component's checks there. What matrix.lock lacks for that is resolved, as \"assay lock\" does.",
		Flags: append(o.common.flags(
			&cli.StringSliceFlag{Name: "platform", Usage: "`PLATFORM` to test on; may be repeated (default: the target's own)", Destination: &o.platform},
			grammar.Format(&o.output, "text", "json"),
		), o.builderFlags.flags()...),
		Action: func(c *cli.Context) error { return o.asRoot(c, o.run) },
	}
}

func (o *componentTestFlags) run(c *cli.Context) error {
	if c.NArg() < 1 {
		return exit.Usagef("component test wants a NAME")
	}
	on, err := platforms(o.platform.Value())
	if err != nil {
		return err
	}
	w, err := o.open(c)
	if err != nil {
		return err
	}
	name := c.Args().First()
	tests, err := w.TestComponent(c.Context, name, c.Args().Tail(), driver.BuildOptions{
		Platforms: on, Builders: o.addrs(), Buildkitd: o.buildkitd, Progress: o.progress, Limits: o.limits,
	})
	if err != nil {
		return err
	}
	if o.output == "json" {
		if err := writeJSON(c.App.Writer, map[string]any{"schemaVersion": 1, "component": name, "tests": tests}); err != nil {
			return err
		}
	}
	status := exit.Pass
	for _, t := range tests {
		if o.output == "text" {
			testText(c, t)
		}
		if s := t.Status(); status == exit.Pass || s == exit.Fail {
			status = s
		}
	}
	if status != exit.Pass {
		return exit.With(status, nil)
	}
	return nil
}

func testText(c *cli.Context, t driver.ComponentTest) {
	fmt.Fprintf(c.App.Writer, "%s %s %s\n", t.Target, t.Platform, t.Image)
	for _, r := range t.Checks {
		fmt.Fprintf(c.App.Writer, "  %-5s %s %s\n", r.Verdict, r.ID, r.Reason)
		if r.Verdict != result.Pass && r.Output != "" {
			fmt.Fprintf(c.App.Writer, "        | %s\n", strings.ReplaceAll(strings.TrimSpace(r.Output), "\n", "\n        | "))
		}
	}
	if t.Error != "" {
		fmt.Fprintln(c.App.ErrWriter, "assay: "+t.Error)
	} else if len(t.Checks) == 0 {
		fmt.Fprintln(c.App.ErrWriter, "assay: the component has no checks: nothing says that it works")
	}
}

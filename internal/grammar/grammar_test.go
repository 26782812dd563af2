package grammar

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/assay-hpc/assay/internal/exit"
)

// app has one command, build, with a flag that had another name.
func app(out io.Writer, ran *[]string) *cli.App {
	var form, to string
	a := &cli.App{
		Name: "x", Version: "v7", Writer: out, ErrWriter: out, ExitErrHandler: func(*cli.Context, error) {},
		Commands: []*cli.Command{{
			Name: "build", Usage: "build it",
			Flags: []cli.Flag{Format(&form, "text", "json"), &cli.StringFlag{Name: "out", Usage: "write to `FILE`", Destination: &to, Value: "a"}, &cli.BoolFlag{Name: "dry", Usage: "do nothing"}, &cli.IntFlag{Name: "n", Usage: "`N` times (default: as many as there are)"}},
			Action: func(c *cli.Context) error {
				*ran = append(*ran, form+" "+to+" "+strings.Join(c.Args().Slice(), " "))
				return nil
			},
		}},
	}
	Output(a.Commands)
	return a
}

func TestFlags(t *testing.T) {
	for in, want := range map[string]string{
		"x build":                               "text a ",
		"x build k -o json l":                   "json a k l",
		"x build k --output json --out b --dry": "json b k",
		"x build k --out=c":                     "text c k",
	} {
		var ran []string
		a := app(io.Discard, &ran)
		if err := a.Run(Args(a, strings.Fields(in))); err != nil || len(ran) != 1 || ran[0] != want {
			t.Errorf("%s: %q, %v; want %q", in, ran, err, want)
		}
	}
	var ran []string
	a := app(io.Discard, &ran)
	err := a.Run(Args(a, strings.Fields("x build -o xml")))
	if exit.Of(err) != exit.Usage || err.Error() != `--format is text or json, not "xml"` || ran != nil {
		t.Errorf("another format: %v", err)
	}
}

func TestHelp(t *testing.T) {
	var out bytes.Buffer
	a := app(&out, new([]string))
	if err := a.Run(Args(a, strings.Fields("x build --version"))); err != nil || out.String() != "x version v7\n" {
		t.Errorf("--version: %q, %v", out.String(), err)
	}
	out.Reset()
	if err := a.Run(strings.Fields("x build --help")); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"   -o, --format FORMAT\n         FORMAT on stdout: text or json (default: text)\n", "--out FILE\n         write to FILE (default: a)\n", "--dry\n         do nothing\n", "N times (default: as many as there are)\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for _, not := range []string{"--output"} {
		if strings.Contains(out.String(), not) {
			t.Errorf("%s in\n%s", not, out.String())
		}
	}
}

// A shell offers what the help shows.
func TestCompletion(t *testing.T) {
	var out bytes.Buffer
	a := app(&out, new([]string))
	a.EnableBashCompletion = true
	defer func(args []string) { os.Args = args }(os.Args)
	os.Args = strings.Fields("x build --o --generate-bash-completion") // urfave/cli looks there
	if err := a.Run(Args(a, os.Args)); err != nil || out.String() != "--out\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
}

func TestCheck(t *testing.T) {
	if p := Check(app(io.Discard, nil).Commands); p != nil {
		t.Errorf("a good command: %q", p)
	}
	for _, f := range []cli.Flag{
		&cli.StringFlag{Name: "output", Usage: "write to `FILE`"},
		&cli.StringFlag{Name: "list", Aliases: []string{"o"}, Usage: "`WHAT` to list"},
		&cli.StringFlag{Name: "platform", Usage: "`NAME` of the machine"},
		&cli.StringFlag{Name: "key", Usage: "the key"},
		&cli.BoolFlag{Name: "dry", Usage: "`NOTHING` is done"},
	} {
		if p := Check([]*cli.Command{{Name: "c", Subcommands: []*cli.Command{{Name: "d", Flags: []cli.Flag{f}}}}}); len(p) != 1 || !strings.HasPrefix(p[0], "c d --") {
			t.Errorf("%v: %q", f.Names(), p)
		}
	}
}

// TestMan: nothing that help says is taken for a request or an escape.
func TestMan(t *testing.T) {
	a := app(io.Discard, new([]string))
	a.Usage, a.Commands[0].Description = `a \fBtool\fR`, ".TH of a line\n'quoted' C:\\x…"
	want := `.TH X 1 "" "x v7"
.SH NAME
x \- a \efBtool\efR
.SH SYNOPSIS
.B x
.I command
[\fIflag\fR]... [\fIargument\fR]...
.SH COMMANDS
.SS x build
Build it.
.PP
\&.TH of a line
\&'quoted' C:\ex\[u2026]
.PP
.nf
its own \-flags
.fi
.TP
\fB\-o, \-\-format FORMAT\fR
FORMAT on stdout: text or json (default: text)
.TP
\fB\-\-out FILE\fR
write to FILE (default: a)
.TP
\fB\-\-dry\fR
do nothing
.TP
\fB\-n N\fR
N times (default: as many as there are)
`
	if got := Man(a, func(string) string { return "its own -flags" }); got != want {
		t.Errorf("the page is\n%s\nwant\n%s", got, want)
	}
}

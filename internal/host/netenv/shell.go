package netenv

import (
	"fmt"
	"io"
	"strings"

	"github.com/assay-hpc/assay/internal/words"
)

// WriteExport writes lines for a shell to evaluate: eval "$(harness show environment --export)",
// with the quotation marks. Each line ends with its reason in a comment; variables that are kept or
// left alone are comments only.
func (p *Plan) WriteExport(w io.Writer) error {
	var b strings.Builder
	for _, v := range p.Set {
		fmt.Fprintf(&b, "export %s=%s  # %s\n", v.Name, quote(v.Value), oneLine(v.Reason))
	}
	for _, k := range p.Kept {
		fmt.Fprintf(&b, "# %s is kept as it is: %s (%s)\n", k.Name, oneLine(k.Value), oneLine(k.From))
	}
	for _, u := range p.Unset {
		fmt.Fprintf(&b, "# %s is left alone: %s\n", u.Name, oneLine(u.Reason))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// quote turns any value into one word for any sh.
func quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// oneLine replaces control characters, so that a comment cannot end early and nothing reaches the
// terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s)
}

// Line summarises a plan in one line.
func (p *Plan) Line(override bool) string {
	var set, kept []string
	for _, v := range p.Set {
		set = append(set, v.Name+"="+oneLine(v.Value))
	}
	for _, k := range p.Kept {
		if override && k.Found != "" && k.Found != k.Value {
			set = append(set, k.Name+"="+oneLine(k.Found))
		} else {
			kept = append(kept, k.Name)
		}
	}
	text := "set " + strings.Join(set, " ")
	if len(set) == 0 {
		text = "set nothing"
	}
	if len(kept) > 0 {
		text += "; kept " + strings.Join(kept, " ")
	}
	if n := len(p.Warnings); n > 0 {
		text += fmt.Sprintf("; %s: see harness show environment", words.Count(n, "warning"))
	}
	return text
}

// Apply adds the plan's variables to an environment in the form of os.Environ. The user's settings
// in it stay, unless override is set.
func (p *Plan) Apply(environ []string, override bool) []string {
	want := map[string]string{}
	for _, v := range p.Set {
		want[v.Name] = v.Value
	}
	for _, k := range p.Kept {
		if override && k.Found != "" {
			want[k.Name] = k.Found
		}
	}
	var out []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if _, ours := want[name]; !ours {
			out = append(out, entry)
		}
	}
	for _, v := range p.Set {
		out = append(out, v.Name+"="+v.Value)
	}
	for _, k := range p.Kept {
		if v, ok := want[k.Name]; ok {
			out = append(out, k.Name+"="+v)
		}
	}
	return out
}

package netenv

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WriteText writes a plan as readable text.
func (p *Plan) WriteText(w io.Writer, n *Node) error {
	var b strings.Builder
	line := func(what, format string, a ...any) {
		fmt.Fprintf(&b, "%-10s %s\n", what, oneLine(fmt.Sprintf(format, a...)))
	}
	if c := p.Control; c.Interface != "" {
		line("control", "%s, %s: %s", c.Interface, c.Family, c.Why)
	} else {
		line("control", "none: %s", c.Why)
	}
	line("data", "%s: %s", p.Data.Kind, p.Data.Why)
	for i, c := range p.Data.Ports {
		line("", "%s", p.portText(n.Ports[i], c))
	}
	line("GPUs", "%s", gpusText(n))
	section := func(title string, entries int) {
		if entries > 0 {
			fmt.Fprintf(&b, "\n%s\n", title)
		}
	}
	section("set", len(p.Set))
	for _, v := range p.Set {
		writeEntry(&b, v.Name+"="+v.Value, v.Reason)
	}
	section("kept as it is set", len(p.Kept))
	for _, k := range p.Kept {
		writeEntry(&b, fmt.Sprintf("%s=%s (%s)", k.Name, k.Value, k.From), keptText(k))
	}
	section("left alone", len(p.Unset))
	for _, u := range p.Unset {
		writeEntry(&b, u.Name, u.Reason)
	}
	section("warnings", len(p.Warnings))
	for _, x := range p.Warnings {
		writeEntry(&b, x.What, "remedy: "+x.Remedy)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (p *Plan) portText(port Port, c Choice) string {
	text := fmt.Sprintf("%s:%d", port.name(), c.Port)
	for _, part := range []string{port.Layer, port.State} {
		if part != "" && part != "Unspecified" {
			text += " " + part
		}
	}
	if port.Gbit > 0 {
		text += fmt.Sprintf(" %g Gb/s", port.Gbit)
	}
	if len(port.Netdevs) > 0 {
		text += " (" + strings.Join(port.Netdevs, ", ") + ")"
	}
	if !c.Used {
		return text + ": left out, " + c.Why
	}
	text += ": used"
	for _, path := range pathOrder {
		on := slices.DeleteFunc(slices.Clone(c.GPUs), func(g int) bool { return port.Paths[g] != path })
		text += gpuText(", "+path+" to ", on)
	}
	if c.GID >= 0 {
		text += fmt.Sprintf(", GID %d", c.GID)
	}
	return text
}

func gpusText(n *Node) string {
	if len(n.GPUs) == 0 {
		return "none"
	}
	text := fmt.Sprint(len(n.GPUs))
	if name := n.GPUs[0].Name; name != "" {
		text += " x " + name
	}
	if n.Platform != "" {
		text += " (" + n.Platform + ")"
	}
	return text
}

func keptText(k Kept) string {
	switch {
	case k.Against != "":
		return "it " + k.Against
	case k.Found == k.Value:
		return "as it would be set: " + k.Reason
	case k.Found != "":
		return "it will do; it would be set to " + k.Found
	case k.Reason != "":
		return "it would be left alone: " + k.Reason
	}
	return "yours: nothing here speaks for or against it"
}

// width is the column at which reasons are wrapped.
const width = 110

// writeEntry writes a head line and the wrapped text below it.
func writeEntry(b *strings.Builder, head, text string) {
	b.WriteString("  " + oneLine(head) + "\n")
	at := 0
	for word := range strings.FieldsSeq(oneLine(text)) {
		switch {
		case at == 0:
			b.WriteString("      ")
			at = 6
		case at+1+len([]rune(word)) > width:
			b.WriteString("\n      ")
			at = 6
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += len([]rune(word))
	}
	b.WriteByte('\n')
}

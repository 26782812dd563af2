package topology

import (
	"bufio"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

// Limits of the files that are read.
const (
	maxXML      = 8 << 20
	maxElements = 1 << 16
	maxDepth    = 32
)

// A syntaxError is a mistake in a topology file.
type syntaxError struct {
	Line int
	Msg  string
}

func (e *syntaxError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Msg) }

// An element is a node of the document.
type element struct {
	name string
	line int
	attr map[string]string
	sub  []*element
}

func parseElements(r io.Reader) (*element, error) {
	limited := &io.LimitedReader{R: r, N: maxXML + 1}
	d := xml.NewDecoder(bufio.NewReader(limited))
	top := &element{}
	open := []*element{top}
	for count := 0; ; {
		tok, err := d.Token()
		line, _ := d.InputPos()
		if limited.N <= 0 {
			return nil, &syntaxError{line, fmt.Sprintf("the file is longer than %d bytes", maxXML)}
		}
		if err == io.EOF {
			break
		}
		var bad *xml.SyntaxError
		if errors.As(err, &bad) {
			return nil, &syntaxError{bad.Line, bad.Msg}
		}
		if err != nil {
			return nil, err
		}
		switch t := tok.(type) {
		case xml.Directive:
			return nil, &syntaxError{line, "a document type or other directive, which topology files do not have"}
		case xml.StartElement:
			if count++; count > maxElements || len(open) > maxDepth {
				return nil, &syntaxError{line, fmt.Sprintf("more than %d elements, or %d in one another", maxElements, maxDepth)}
			}
			e := &element{name: t.Name.Local, line: line, attr: map[string]string{}}
			for _, a := range t.Attr {
				e.attr[a.Name.Local] = a.Value
			}
			parent := open[len(open)-1]
			parent.sub = append(parent.sub, e)
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		}
	}
	if len(top.sub) != 1 || top.sub[0].name != "system" {
		return nil, &syntaxError{1, "no <system> element around everything: this is not a topology of NCCL's"}
	}
	return top.sub[0], nil
}

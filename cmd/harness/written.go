package main

import (
	"encoding/json"
	"io"
)

// A written is a report that a person or a program reads.
type written interface{ WriteText(io.Writer) error }

// writeReport writes a report as text or JSON, and if file is not "" as JSON
// to a file.
func writeReport(d written, out io.Writer, format, file string) error {
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if file != "" {
		if err := writeFile(file, b); err != nil {
			return err
		}
	}
	if format == "json" {
		_, err = out.Write(b)
		return err
	}
	return d.WriteText(out)
}

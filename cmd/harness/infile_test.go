package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/assay-hpc/assay/internal/certificate/certificatetest"
	"github.com/assay-hpc/assay/internal/exit"
)

// TestKindsOfFiles: a file of an argument that is no regular one is refused with its kind; a
// descriptor that the shell opened is read, and a huge file is refused by its size.
func TestKindsOfFiles(t *testing.T) {
	dir := t.TempDir()
	fifo, sparse := filepath.Join(dir, "fifo.yaml"), filepath.Join(dir, "sparse.json")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sparse, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(sparse, 3<<30); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"report"}, {"history"}, {"push"}, {"bandwidth", "table"}, {"coll", "table"},
		{"certify", "--suite"}, {"health", "--thresholds"}, {"report", "--history"}, {"coll", "tune", "--out"},
	} {
		for file, want := range map[string]string{fifo: "is a FIFO (named pipe)", sparse: "is 3221225472 bytes long"} {
			if file == sparse && (command[0] == "certify" || command[0] == "health") {
				continue // they have limits of their own
			}
			args := append(command, file)
			if args[0] == "push" {
				args = append(args, "127.0.0.1:1/a/b")
			}
			if args[0] == "report" && len(args) == 3 {
				args = append(args, sparse)
				want = "is " // of either file
			}
			app := newApp(io.Discard, io.Discard)
			err := app.Run(append([]string{"harness"}, args...))
			if err == nil || !strings.Contains(err.Error(), want) || exit.Of(err) != exit.Usage {
				t.Errorf("harness %s: %v (status %d); want %q and status 2", strings.Join(args, " "), err, exit.Of(err), want)
			}
		}
	}
	doc, err := certificatetest.Node(1).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		w.Write(doc)
		w.Close()
	}()
	var out bytes.Buffer
	if err := newApp(&out, io.Discard).Run([]string{"harness", "report", fmt.Sprintf("/dev/fd/%d", r.Fd())}); err != nil || out.Len() == 0 {
		t.Errorf("a pipe of the shell: %v", err)
	}
	// In a directory, one such file does not hide the others.
	if err := os.WriteFile(filepath.Join(dir, "good.json"), doc, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(fifo, filepath.Join(dir, "fifo.json")); err != nil {
		t.Fatal(err)
	}
	var told bytes.Buffer
	err = newApp(&out, &told).Run([]string{"harness", "history", dir})
	if text := told.String() + fmt.Sprint(err); !strings.Contains(text, "fifo.json is a FIFO") || !strings.Contains(text, "sparse.json is 3221225472 bytes long") {
		t.Errorf("a directory with a FIFO and a huge file: %q", text)
	}
}

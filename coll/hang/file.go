package hang

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
)

// verdicts counts the verdicts that this process has written.
var verdicts atomic.Int64

// write writes a verdict to a new file in a directory. The file must not exist before: a
// directory for temporary files belongs to other users as well, and they may have put a link there.
func (v *Verdict) write(dir string) (err error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	if dir == "" {
		dir = os.TempDir()
	}
	host, _ := os.Hostname()
	name := filepath.Join(dir, fmt.Sprintf("assay-hang-%s-%d-%d.json", host, os.Getpid(), verdicts.Add(1)))
	_ = os.Remove(name) // left by an earlier process with this PID
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err == nil {
		v.File = name
	}
	return err
}

package standin

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

//go:embed testdata
var embedded embed.FS

// generation is part of every cache key. Increase it when a change of the Go code here changes
// the output for the same inputs.
const generation = 1

// epoch is the time of every file in every archive, package and layer.
var epoch = time.Unix(1700000000, 0)

// A store keeps results in directories named after their inputs.
type store struct {
	dir  string
	log  io.Writer
	sums sync.Map // maps path to SHA-256; the paths' contents never change
	busy sync.Map // maps path to *sync.Mutex, held while it is made
}

// make returns a directory that fn has filled, from inputs; it calls fn only
// if no earlier call with equal inputs has succeeded.
func (s *store) make(name string, inputs []any, fn func(dir string) error) (string, error) {
	key := sha256.Sum256(fmt.Append(nil, generation, name, fmt.Sprintf("%q", inputs)))
	dir := filepath.Join(s.dir, "made", name+"-"+hex.EncodeToString(key[:8]))
	mu, _ := s.busy.LoadOrStore(dir, &sync.Mutex{})
	mu.(*sync.Mutex).Lock()
	defer mu.(*sync.Mutex).Unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	start, tmp := time.Now(), dir+".part"
	if err := os.RemoveAll(tmp); err != nil {
		return "", err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return "", err
	}
	if err := fn(tmp); err != nil {
		return "", fmt.Errorf("making %s: %w", name, err)
	}
	fmt.Fprintf(s.log, "standin: made %s in %.1f s\n", name, time.Since(start).Seconds())
	return dir, os.Rename(tmp, dir)
}

// sum returns the SHA-256 of a file in the store.
func (s *store) sum(file string) (string, error) {
	if sum, ok := s.sums.Load(file); ok {
		return sum.(string), nil
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	s.sums.Store(file, sum)
	return sum, nil
}

// readSource returns one file of testdata.
func readSource(name string) ([]byte, error) { return embedded.ReadFile(path.Join("testdata", name)) }

// walkSources calls fn for every file of testdata at or under name.
func walkSources(name string, fn func(name string, content []byte) error) error {
	root := path.Join("testdata", name)
	return fs.WalkDir(embedded, root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := embedded.ReadFile(p)
		if err != nil {
			return err
		}
		return fn(strings.TrimPrefix(p, "testdata/"), content)
	})
}

// sourceMode returns a file's permissions, which embedding loses: a file that begins like a
// script is executable.
func sourceMode(content []byte) fs.FileMode {
	if strings.HasPrefix(string(content), "#!") {
		return 0o755
	}
	return 0o644
}

// contentHash identifies the content of parts of testdata in cache keys.
func contentHash(names ...string) string {
	h := sha256.New()
	for _, name := range names {
		err := walkSources(name, func(name string, content []byte) error {
			_, err := fmt.Fprintf(h, "%s %d\n%s", name, len(content), content)
			return err
		})
		if err != nil {
			panic("standin: " + err.Error()) // the names are our own
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// extract writes testdata to dir, where build scripts can read it.
func extract(dir string) error {
	return walkSources(".", func(name string, content []byte) error {
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, content, sourceMode(content))
	})
}

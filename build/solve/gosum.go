package solve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb"
	"golang.org/x/mod/sumdb/dirhash"
)

const (
	sumName = "sum.golang.org"
	// sumKey is the public key of the checksum database, as in the go command.
	sumKey = sumName + "+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"

	toolchainModule = "golang.org/toolchain"
)

// toolchainVersion returns the version of the Go toolchain if the URL is the download of one.
// Modules are checked against go.sum when they are compiled; nothing else checks the toolchain.
func toolchainVersion(url string) (version string, ok bool) {
	v, ok := strings.CutPrefix(url, "goproxy:"+toolchainModule+"/@v/")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(v, ".zip")
}

// checkToolchain checks a toolchain's archive against the record in Go's checksum database.
func (p *Provider) checkToolchain(ctx context.Context, version, file string) error {
	got, err := dirhash.HashZip(file, dirhash.Hash1)
	if err != nil {
		return err
	}
	ops := &sumOps{ctx: ctx, provider: p, cache: map[string][]byte{}, config: map[string][]byte{"key": []byte(sumKey)}}
	if p.sumKey != "" {
		ops.config["key"] = []byte(p.sumKey)
	}
	lines, err := sumdb.NewClient(ops).Lookup(toolchainModule, version)
	if err != nil {
		return fmt.Errorf("the checksum database %s of Go has to say what the toolchain is, and could not be asked: %w; a mirror for goproxy: has to serve the database too, at /sumdb/%[1]s, or give --mirror https://%[1]s=URL", sumName, errors.Join(err, ops.err))
	}
	want := toolchainModule + " " + version + " " + got
	if !slices.Contains(lines, want) {
		return fmt.Errorf("the download is %s; Go's checksum database has: %s", got, strings.Join(lines, "; "))
	}
	return nil
}

// sumOps lets sumdb's client read the database: through the module proxy if the proxy serves it,
// otherwise from the database itself. Nothing is stored permanently: each lookup proves that the
// record is in the signed tree.
type sumOps struct {
	ctx      context.Context
	provider *Provider

	mu     sync.Mutex
	cache  map[string][]byte
	config map[string][]byte
	err    error
	direct *bool
}

func (o *sumOps) ReadRemote(path string) ([]byte, error) {
	o.mu.Lock()
	if o.direct == nil {
		_, err := o.read("goproxy:sumdb/" + sumName + "/supported")
		direct := err != nil
		o.direct = &direct
	}
	direct := *o.direct
	o.mu.Unlock()
	if direct {
		return o.read("https://" + sumName + path)
	}
	return o.read("goproxy:sumdb/" + sumName + path)
}

func (o *sumOps) read(url string) ([]byte, error) {
	at, err := o.provider.Mirror.URL(url)
	if err != nil {
		return nil, err
	}
	return o.provider.cache.Text(o.ctx, at)
}

func (o *sumOps) ReadConfig(file string) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.config[file], nil // sumdb starts with an empty tree
}

func (o *sumOps) WriteConfig(file string, old, new []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if string(o.config[file]) != string(old) {
		return sumdb.ErrWriteConflict
	}
	o.config[file] = new
	return nil
}

func (o *sumOps) ReadCache(file string) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if data, ok := o.cache[file]; ok {
		return data, nil
	}
	return nil, fs.ErrNotExist
}

func (o *sumOps) WriteCache(file string, data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.cache[file] = data
}

func (o *sumOps) Log(string) {}

// SecurityError is called before sumdb returns an error which says that the database contradicts
// itself.
func (o *sumOps) SecurityError(msg string) { o.err = errors.Join(o.err, errors.New(msg)) }

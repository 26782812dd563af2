package signtest

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/common"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/handler"

	"github.com/assay-hpc/assay/internal/attest"
)

// Scheme is served by the tests' plugin program: testkms://FILE is the key in the PEM file.
const Scheme = "testkms"

// Program runs the plugin program if the test binary was started under that name, which Install
// gives it. A TestMain calls it first.
func Program() {
	if filepath.Base(os.Args[0]) != cliplugin.PluginBinaryPrefix+Scheme {
		return
	}
	if err := serve(); err != nil {
		_ = handler.WriteErrorResponse(os.Stdout, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Install links this test binary as the plugin program in dir, which must be on PATH.
func Install(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return os.Symlink(self, filepath.Join(dir, cliplugin.PluginBinaryPrefix+Scheme))
}

func serve() error {
	args, err := handler.GetPluginArgs(os.Args)
	if err != nil {
		return err
	}
	switch {
	case strings.HasPrefix(args.InitOptions.KeyResourceID, "silent"): // the requested answer is missing
		return handler.WriteResponse(os.Stdout, &common.PluginResp{})
	case strings.HasPrefix(args.InitOptions.KeyResourceID, "telling"):
		return fmt.Errorf("no key for the token %s", os.Getenv("VAULT_TOKEN"))
	}
	key, err := attest.LoadPrivateKey(args.InitOptions.KeyResourceID)
	if err != nil {
		return err
	}
	sv, err := signature.LoadSignerVerifier(key, args.InitOptions.HashFunc)
	if err != nil {
		return err
	}
	_, err = handler.Dispatch(os.Stdout, os.Stdin, args, service{sv})
	return err
}

// service wraps a key from a file as a service's key.
type service struct{ signature.SignerVerifier }

var errNotHere = errors.New("the tests' plugin does not do that")

func (service) CreateKey(context.Context, string) (crypto.PublicKey, error) { return nil, errNotHere }
func (service) CryptoSigner(context.Context, func(error)) (crypto.Signer, crypto.SignerOpts, error) {
	return nil, nil, errNotHere
}
func (service) SupportedAlgorithms() []string { return nil }
func (service) DefaultAlgorithm() string      { return "" }

// Command sigstore-kms is a plugin program in sigstore's sense for the keys of a
// cloud: under the name sigstore-kms-awskms, sigstore-kms-gcpkms or
// sigstore-kms-azurekms on PATH it serves awskms://…, gcpkms://… or azurekms://… to
// the harness, to assay and to any other program that uses sigstore's library. It is
// a program of its own because the clouds' libraries would double the harness.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/sigstore/sigstore/pkg/signature/kms"
	_ "github.com/sigstore/sigstore/pkg/signature/kms/aws" // each registers its scheme
	_ "github.com/sigstore/sigstore/pkg/signature/kms/azure"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin"
	"github.com/sigstore/sigstore/pkg/signature/kms/cliplugin/handler"
	_ "github.com/sigstore/sigstore/pkg/signature/kms/gcp"
)

func main() {
	if err := serve(os.Args, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, filepath.Base(os.Args[0])+":", err)
		os.Exit(1)
	}
}

// serve answers the one call that the arguments hold. What the key's service refuses
// stands in the answer; an error is that there is none.
func serve(args []string, in io.Reader, out io.Writer) error {
	scheme, err := scheme(args[0])
	if err != nil {
		return err // nobody who speaks the protocol started us so
	}
	call, err := handler.GetPluginArgs(args)
	if err != nil {
		return err
	}
	if call.InitOptions == nil || call.MethodArgs == nil {
		return errors.New("the call does not say which key, or what to do with it")
	}
	ctx := context.Background()
	if d := call.InitOptions.CtxDeadline; d != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, *d)
		defer cancel()
	}
	key, err := kms.Get(ctx, scheme+"://"+call.InitOptions.KeyResourceID, call.InitOptions.HashFunc)
	if err != nil {
		return handler.WriteErrorResponse(out, err)
	}
	_, err = handler.Dispatch(out, in, call, key)
	return err
}

// scheme returns what this program serves under its name.
func scheme(program string) (string, error) {
	name := filepath.Base(program)
	s, _ := strings.CutPrefix(name, cliplugin.PluginBinaryPrefix)
	for _, p := range kms.SupportedProviders() {
		if p == s+"://" {
			return s, nil
		}
	}
	return "", fmt.Errorf("it is called %s; the name says which keys it serves: link it as %sawskms, …gcpkms or …azurekms", name, cliplugin.PluginBinaryPrefix)
}

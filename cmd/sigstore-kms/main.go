// Command sigstore-kms is a plugin program of sigstore for keys of a cloud. On PATH
// under the name sigstore-kms-awskms, sigstore-kms-gcpkms or sigstore-kms-azurekms, it
// serves awskms://…, gcpkms://… or azurekms://… to the harness, to assay and to any other
// program that uses sigstore's library. It is a separate program because the clouds'
// libraries would double the size of the harness.
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

// serve answers the call that the arguments contain. If the key's service refuses, the
// answer contains the refusal. An error means that there is no answer.
func serve(args []string, in io.Reader, out io.Writer) error {
	scheme, err := scheme(args[0])
	if err != nil {
		return err // no caller that speaks the protocol uses such a name
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

// scheme returns the scheme that the program serves under its name.
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

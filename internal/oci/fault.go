package oci

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

// A remoteError says what a registry refused, or that it cannot be reached. Its text contains no
// credentials, so it does not wrap its cause.
type remoteError struct {
	Op         string // "push to", "read from"
	Registry   string // ghcr.io
	Repository string // owner/assay
	What       string // "blob sha256:…", "manifest 12.9.1-…"
	Status     int    // HTTP status of the answer, 0 if there was none
	Reason     string
	Attempts   int

	total   time.Duration
	unknown bool // the registry says that the repository is there, but not what was asked for
}

func (e *remoteError) Error() string {
	s := fmt.Sprintf("%s %s/%s: %s: %s", e.Op, e.Registry, e.Repository, e.What, e.Reason)
	if e.Attempts > 1 {
		s += fmt.Sprintf(" (after %d attempts)", e.Attempts)
	}
	if r := e.remedy(); r != "" {
		s += "; " + r
	}
	return s
}

func (e *remoteError) remedy() string {
	login := fmt.Sprintf("\"docker login %s\"", e.Registry)
	switch e.Status {
	case http.StatusTooManyRequests:
		return "it limits requests: try again later, or set " + TotalVariable + " to wait longer (now " + e.total.String() + ")"
	case http.StatusUnauthorized:
		return "log in first: " + login
	case http.StatusForbidden:
		return "this login may not do that; use one that may: " + login
	case http.StatusNotFound:
		if e.unknown {
			return fmt.Sprintf("the repository %s has no such tag or image: compare the name with its list of tags", e.Repository)
		}
		return fmt.Sprintf("%s does not exist there, or this login may not see it: create it, or %s", e.Repository, login)
	}
	return ""
}

// A Caller makes calls to one repository. It repeats calls that may succeed later, and turns other
// failures into a RemoteError.
type Caller struct {
	client *Client
	repo   name.Repository
	verb   string
}

// Caller returns a Caller for a repository; verb is the prefix of its errors: "push to", "read
// from".
func (w *Client) Caller(repo name.Repository, verb string) Caller { return Caller{w, repo, verb} }

// Do calls f until it succeeds, fails permanently, or has no attempts left. what names the object
// in errors: "blob sha256:…".
func (c Caller) Do(ctx context.Context, what string, f func() error) error {
	end := time.Now().Add(c.client.retry.Total)
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s %s: %s: %w", c.verb, c.repo, what, context.Cause(ctx))
		}
		if !Temporary(err) || attempt >= c.client.retry.Attempts || time.Now().After(end) {
			return c.fault(what, attempt, err)
		}
		_ = sleep(ctx, c.client.retry.delay(attempt-1)) // if ctx ends, f fails at once
	}
}

func (c Caller) fault(what string, attempts int, err error) error {
	var own Permanent
	if errors.As(err, &own) {
		return own
	}
	return &remoteError{
		Op: c.verb, Registry: c.repo.RegistryStr(), Repository: c.repo.RepositoryStr(), What: what,
		Status: Status(err), Reason: oneLine(c.client.scrub(err.Error())), Attempts: attempts, total: c.client.retry.Total, unknown: manifestUnknown(err),
	}
}

// permanentError is an error that a retry does not fix.
type permanentError string

func (e permanentError) Error() string { return string(e) }
func (e permanentError) Permanent()    {}

// manifestUnknown reports whether a registry answered that it has the repository without this
// manifest.
func manifestUnknown(err error) bool {
	var te *transport.Error
	if !errors.As(err, &te) {
		return false
	}
	return slices.ContainsFunc(te.Errors, func(d transport.Diagnostic) bool { return d.Code == transport.ManifestUnknownErrorCode })
}

// maxReason is the longest reason that is shown, in bytes.
const maxReason = 500

// oneLine shortens what a registry, or a proxy before it, answered: that may be a page of HTML.
func oneLine(text string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if i := htmlPage.FindStringIndex(text); i != nil {
		return strings.TrimRight(strings.Join(strings.Fields(text[:i[0]]), " "), ": ") + ": a page of HTML"
	}
	line = strings.ToValidUTF8(strings.TrimSpace(line), "?")
	if len(line) > maxReason {
		line, rest = strings.ToValidUTF8(line[:maxReason], ""), "more"
	}
	if strings.TrimSpace(rest) != "" {
		line += " …"
	}
	return line
}

var htmlPage = regexp.MustCompile(`(?i)<(!doctype|html|head|body)\b`)

// Permanent is an error on the caller's side, such as a damaged file: it is returned unchanged,
// without a retry.
type Permanent interface {
	error
	Permanent()
}

// Status returns the HTTP status with which a registry refused a request, or 0.
func Status(err error) int {
	var te *transport.Error
	if errors.As(err, &te) {
		return te.StatusCode
	}
	return 0
}

func temporaryStatus(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	case http.StatusNotImplemented, http.StatusHTTPVersionNotSupported:
		return false
	}
	return status >= 500
}

// Temporary reports whether the same call may succeed later. A registry's decision is final; a
// failure of the registry, or of the network path to it, is temporary. So is a cancellation that is
// not the caller's own: it waited for another push of the same Pusher, which was cancelled.
func Temporary(err error) bool {
	var te *transport.Error
	if errors.As(err, &te) {
		return temporaryStatus(te.StatusCode) || lostUpload(te)
	}
	var own Permanent
	if errors.As(err, &own) || permanentNetwork(err) {
		return false
	}
	var stall *stallError
	if errors.As(err, &stall) {
		return true
	}
	var ue *url.Error
	var oe *net.OpError
	return errors.As(err, &ue) || errors.As(err, &oe) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// lostUpload reports whether the registry does not know the upload: one with several nodes may not
// know an upload that it has just started. A new upload solves that.
func lostUpload(te *transport.Error) bool {
	for _, d := range te.Errors {
		if d.Code == transport.BlobUploadUnknownErrorCode || d.Code == transport.BlobUploadInvalidErrorCode {
			return true
		}
	}
	return false
}

func permanentNetwork(err error) bool {
	var (
		dns     *net.DNSError
		cert    *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		record  tls.RecordHeaderError
	)
	return errors.As(err, &dns) && dns.IsNotFound || errors.As(err, &cert) || errors.As(err, &unknown) || errors.As(err, &record)
}

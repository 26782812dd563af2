package oci

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Options are the options of a client. The zero value is valid.
type Options struct {
	Insecure  bool              // plain HTTP; registries on localhost always use it
	Keychain  authn.Keychain    // nil means Docker's: config.json and credential helpers
	Transport http.RoundTripper // nil means remote.DefaultTransport
	UserAgent string
	Retry     Retry
	// Stall is how long a request may go without a byte in either direction before it is aborted
	// and tried again; 0 means DefaultStall.
	Stall    time.Duration
	Jobs     int            // blobs uploaded at once; 0 means DefaultJobs
	Progress func(Progress) // of uploads; called from one goroutine at a time
}

// A Retry limits the attempts. Zero fields mean the defaults.
type Retry struct {
	Attempts int           // of one blob or manifest; default 6
	Delay    time.Duration // before the second attempt, doubled for each further attempt; default 500 ms
	MaxDelay time.Duration // default 30 s; also the limit for a Retry-After
	// Total is how long after the first attempt of a blob or manifest another attempt may start;
	// default 2 min. An upload that makes progress may take longer.
	Total time.Duration
}

// DefaultStall is how long a connection may be silent.
const DefaultStall = time.Minute

// TotalVariable is the environment variable that sets Retry.Total if the caller does not: "90s".
const TotalVariable = "ASSAY_REGISTRY_TIMEOUT"

func (r Retry) orDefault() Retry {
	if r.Attempts <= 0 {
		r.Attempts = 6
	}
	if r.Delay <= 0 {
		r.Delay = 500 * time.Millisecond
	}
	if r.MaxDelay <= 0 {
		r.MaxDelay = 30 * time.Second
	}
	if r.Total <= 0 {
		r.Total = 2 * time.Minute
		if d, err := time.ParseDuration(os.Getenv(TotalVariable)); err == nil && d > 0 {
			r.Total = d
		}
	}
	return r
}

func (r Retry) delay(attempt int) time.Duration {
	return min(r.Delay<<min(attempt, 20), r.MaxDelay)
}

// RequestAttempts is how often a request is sent if the registry answers that it is overloaded or
// broken. An upload is four requests: restarting the whole upload for each failure would multiply a
// one-in-ten fault by four.
const RequestAttempts = 3

// maxErrorBody is how much is read of an answer with an error status. go-containerregistry forgets
// the status if there are more than 64 KiB, so that a gateway's page would decide what is tried again.
const maxErrorBody = 32 << 10

// A Client is the transport of all requests to one registry. It repeats a request that fails with a
// 5xx, a 429 or no answer. It remembers the credentials that it saw, so that no error text shows
// them, even if a registry's answer contains them.
type Client struct {
	opts     Options
	base     http.RoundTripper
	keychain authn.Keychain
	retry    Retry
	stall    time.Duration

	mu      sync.Mutex
	secrets []string
}

// newClient returns a client. It does not connect.
func newClient(opts Options) *Client {
	w := &Client{opts: opts, base: opts.Transport, keychain: opts.Keychain, retry: opts.Retry.orDefault(), stall: opts.Stall}
	if w.stall <= 0 {
		w.stall = DefaultStall
	}
	if w.base == nil {
		w.base = remote.DefaultTransport
	}
	if w.keychain == nil {
		w.keychain = authn.DefaultKeychain
	}
	return w
}

// NameOptions returns the options for parsing references to the client's registry.
func (w *Client) NameOptions() []name.Option {
	if w.opts.Insecure {
		return []name.Option{name.Insecure}
	}
	return nil
}

// RemoteOptions makes go-containerregistry use the client. It turns off go-containerregistry's own
// retries, which ignore the context while they sleep, and give up on a refused connection.
func (w *Client) RemoteOptions() []remote.Option {
	o := []remote.Option{
		remote.WithTransport(w),
		remote.WithAuthFromKeychain(w),
		remote.WithRetryBackoff(remote.Backoff{Steps: 1}),
		remote.WithRetryPredicate(func(error) bool { return false }),
		remote.WithRetryStatusCodes(),
	}
	if w.opts.UserAgent != "" {
		o = append(o, remote.WithUserAgent(w.opts.UserAgent))
	}
	return o
}

// RoundTrip implements http.RoundTripper.
func (w *Client) RoundTrip(req *http.Request) (*http.Response, error) {
	w.noteHeader(req.Header.Get("Authorization"))
	if from := req.Response; from != nil && from.Request.URL.Scheme == "https" && req.URL.Scheme != "https" {
		return nil, errDowngrade // a redirect
	}
	end := time.Now().Add(w.retry.Total)
	for attempt := 0; ; attempt++ {
		resp, err := roundTrip(w.base, req, w.stall)
		if err == nil && attempt > 0 && req.Method == http.MethodPut && refused(resp.StatusCode) {
			resp.Body.Close()
			return nil, errLost
		}
		if err == nil && resp.StatusCode >= 400 {
			resp.Body = struct {
				io.Reader
				io.Closer
			}{io.LimitReader(resp.Body, maxErrorBody), resp.Body}
		}
		if attempt+1 >= RequestAttempts || !worthRepeating(resp, err) || time.Now().After(end) {
			if err == nil && !asksForBlob(req) {
				resp.Body = &short{resp.Body, maxBlob}
			}
			return resp, err
		}
		again, ok := repeat(req)
		if !ok {
			return resp, err
		}
		if err := sleep(req.Context(), w.wait(resp, attempt)); err != nil {
			return nil, err
		}
		req = again
	}
}

// asksForBlob reports whether a request, before redirects, is for a blob, whose size others limit.
func asksForBlob(req *http.Request) bool {
	for req.Response != nil {
		req = req.Response.Request
	}
	return strings.Contains(req.URL.Path, "/blobs/")
}

// A short is the body of an answer that is read as a whole: a manifest, a list, a token, an error.
type short struct {
	io.ReadCloser
	left int64
}

func (s *short) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p[:min(int64(len(p)), s.left+1)])
	if s.left -= int64(n); s.left < 0 {
		s.Close() // not every reader does after an error
		return 0, permanentError(fmt.Sprintf("the answer is longer than %d bytes, which is all that is read", maxBlob))
	}
	return n, err
}

var errDowngrade = permanentError("the registry redirects from https to http, which is not followed")

// errLost says that what the registry did with a request is not known. The caller must look, and
// start over if it did nothing.
var errLost = errors.New("the answer to a request was lost, and the registry refuses to repeat it")

// refused reports whether a registry refuses a PUT. It may refuse a repeated one because the first
// one, whose answer was lost, succeeded: the upload is finished, or a tag that nobody may move is
// set.
func refused(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusUnauthorized && status != http.StatusTooManyRequests
}

// worthRepeating reports whether the registry answered with a temporary status or closed the
// connection. Other network errors are left to a new attempt of the whole operation.
func worthRepeating(resp *http.Response, err error) bool {
	if err == nil {
		return temporaryStatus(resp.StatusCode)
	}
	for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, cut) {
			return true
		}
	}
	return false
}

// repeat returns a copy of the request to send again, or false if that is not possible: after a
// PATCH the state of the upload is unknown, so the upload must be restarted.
func repeat(req *http.Request) (*http.Request, bool) {
	again := req.Clone(req.Context())
	if req.Body == nil || req.Body == http.NoBody {
		return again, true
	}
	if req.Method == http.MethodPatch || req.GetBody == nil {
		return nil, false
	}
	body, err := req.GetBody()
	again.Body = body
	return again, err == nil
}

// wait returns the time until the next attempt, and consumes the answer to this one; resp is nil if
// there was no answer.
func (w *Client) wait(resp *http.Response, attempt int) time.Duration {
	if resp == nil {
		return w.retry.delay(attempt)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be reused
	resp.Body.Close()
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		return min(time.Duration(s)*time.Second, w.retry.MaxDelay)
	}
	return w.retry.delay(attempt)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Resolve implements authn.Keychain.
func (w *Client) Resolve(target authn.Resource) (authn.Authenticator, error) {
	return w.ResolveContext(context.Background(), target)
}

// ResolveContext implements authn.ContextKeychain.
func (w *Client) ResolveContext(ctx context.Context, target authn.Resource) (authn.Authenticator, error) {
	auth, err := authn.Resolve(ctx, w.keychain, target)
	if err != nil {
		return nil, err
	}
	cfg, err := authn.Authorization(ctx, auth)
	if err != nil {
		return nil, err
	}
	w.note(cfg.Password, cfg.Auth, cfg.IdentityToken, cfg.RegistryToken)
	return auth, nil
}

func (w *Client) noteHeader(authorization string) {
	scheme, value, ok := strings.Cut(authorization, " ")
	if !ok {
		return
	}
	w.note(value)
	if strings.EqualFold(scheme, "basic") {
		b, _ := base64.StdEncoding.DecodeString(value)
		_, password, _ := strings.Cut(string(b), ":")
		w.note(password)
	}
}

func (w *Client) note(secrets ...string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range secrets {
		if s != "" && !slices.Contains(w.secrets, s) {
			w.secrets = append(w.secrets, s)
		}
	}
}

// queryParameter matches one parameter of a URL in an error text. Registries put the state of an
// upload into them, and stores the access rights to it.
var queryParameter = regexp.MustCompile(`([?&])([\w.-]+)=[^&\s"]+`)

var harmless = []string{"digest", "scope", "service", "mount", "from", "n", "last", "artifactType"}

// scrub removes credentials from text.
func (w *Client) scrub(text string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.secrets {
		text = strings.ReplaceAll(text, s, "[hidden]")
	}
	return queryParameter.ReplaceAllStringFunc(text, func(p string) string {
		m := queryParameter.FindStringSubmatch(p)
		if slices.Contains(harmless, m[2]) {
			return p
		}
		return m[1] + m[2] + "=[hidden]"
	})
}
